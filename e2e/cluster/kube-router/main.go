// kube-router's controller of NetworkPolicies. The whole program also compiles a router and a proxy, with clients of BGP, AWS and Docker.
package main

import (
	"sync"

	"github.com/cloudnativelabs/kube-router/v2/pkg/controllers/netpol"
	"github.com/cloudnativelabs/kube-router/v2/pkg/healthcheck"
	"github.com/cloudnativelabs/kube-router/v2/pkg/options"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

func check(err error) {
	if err != nil {
		klog.Fatal(err)
	}
}

func main() {
	config := options.NewKubeRouterConfig()
	config.EnableIPv4, config.RunFirewall = true, true
	config.HealthPort = 20244
	cluster, err := rest.InClusterConfig()
	check(err)
	client, err := kubernetes.NewForConfig(cluster)
	check(err)

	var group sync.WaitGroup
	var sets sync.Mutex
	stop := make(chan struct{}) // never closed: the process is ended
	beats := make(chan *healthcheck.ControllerHeartbeat, 10)
	health, err := healthcheck.NewHealthController(config)
	check(err)

	factory := informers.NewSharedInformerFactory(client, 0)
	pods := factory.Core().V1().Pods().Informer()
	namespaces := factory.Core().V1().Namespaces().Informer()
	policies := factory.Networking().V1().NetworkPolicies().Informer()
	factory.Start(stop)
	factory.WaitForCacheSync(stop)

	iptables, ipsets, err := netpol.NewIPTablesHandlers(config)
	check(err)
	controller, err := netpol.NewNetworkPolicyController(client, config, pods, policies, namespaces, &sets, iptables, ipsets)
	check(err)
	for informer, handler := range map[cache.SharedIndexInformer]cache.ResourceEventHandler{
		pods: controller.PodEventHandler, namespaces: controller.NamespaceEventHandler, policies: controller.NetworkPolicyEventHandler,
	} {
		_, err = informer.AddEventHandler(handler)
		check(err)
	}
	health.SetAlive()
	group.Add(3)
	go health.RunServer(stop, &group)
	go health.RunCheck(beats, stop, &group)
	controller.Run(beats, stop, &group)
}
