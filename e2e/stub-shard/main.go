// A shard without devices, for tests with many pods. It answers the operator as a sensor or camera shard does, and reports
// to the hub each second that every assigned device was heard and analysed. It is configured by a shard's environment,
// but reads neither its assignment's file nor a renewed certificate, keeps no spool, and ends at once.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	pb "embereye.dev/stub-shard/embereyev1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

const (
	hubName        = "hub.embereye.internal" // in the hub's certificate
	coveragePeriod = time.Second
	redialPause    = time.Second
	readingPeriod  = time.Second // of each device
)

type shard struct {
	pb.UnimplementedShardServer
	fleet, name string
	started     time.Time
	changed     chan struct{} // has room for one

	mutex   sync.Mutex
	current *pb.Assignment
}

func (s *shard) assignment() *pb.Assignment {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.current
}

// Assign puts an assignment in force, unless it is for another shard or outdated.
func (s *shard) Assign(_ context.Context, offered *pb.Assignment) (*pb.AssignResponse, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	reason := ""
	if offered.Fleet != s.fleet || offered.Shard != s.name {
		reason = fmt.Sprintf("this is %s of %s, but the assignment is for %s of %s", s.name, s.fleet, offered.Shard, offered.Fleet)
	} else if offered.Epoch < s.current.Epoch {
		reason = fmt.Sprintf("epoch %d is older than epoch %d in force", offered.Epoch, s.current.Epoch)
	} else {
		s.current = offered
		select {
		case s.changed <- struct{}{}:
		default:
		}
	}
	return &pb.AssignResponse{Accepted: reason == "", Epoch: s.current.Epoch, Reason: reason}, nil
}

// Status reports every assigned device as covered.
func (s *shard) Status(_ context.Context, request *pb.StatusRequest) (*pb.ShardStatus, error) {
	current := s.assignment()
	count := uint32(len(current.Devices))
	status := &pb.ShardStatus{
		Fleet: current.Fleet, Shard: s.name, Epoch: current.Epoch, Ready: current.Epoch > 0, Declared: count, Covered: count,
		Load:      &pb.Load{ArrivalRate: float64(count) / readingPeriod.Seconds(), CostSeconds: 0.0001, Utilization: 0.001},
		StartedNs: s.started.UnixNano(),
	}
	if request.Devices {
		status.Devices = s.statuses(current, time.Now())
	}
	return status, nil
}

// Identify says which process answers here.
func (s *shard) Identify(context.Context, *pb.IdentifyRequest) (*pb.IdentifyResponse, error) {
	epoch := s.assignment().Epoch
	return &pb.IdentifyResponse{StartedNs: s.started.UnixNano(), Epoch: epoch, Ready: epoch > 0}, nil
}

func (s *shard) statuses(current *pb.Assignment, now time.Time) []*pb.DeviceStatus {
	readings := uint64(now.Sub(s.started) / readingPeriod)
	statuses := make([]*pb.DeviceStatus, len(current.Devices))
	for i, device := range current.Devices {
		statuses[i] = &pb.DeviceStatus{
			Id: device.Id, Zone: device.Zone, Covered: true, HeardNs: now.UnixNano(), AnalysedNs: now.UnixNano(),
			Ledger: &pb.Ledger{Offered: readings, Analysed: readings, SinceNs: s.started.UnixNano()},
		}
	}
	return statuses
}

// report sends coverage to the hub until the stream ends.
func (s *shard) report(hub pb.EvidenceClient) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stream, err := hub.Report(ctx)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() {
		for {
			if _, err := stream.Recv(); err != nil {
				ended <- err
				return
			}
		}
	}()
	current := s.assignment()
	hello := &pb.ShardHello{Fleet: current.Fleet, Shard: s.name, Epoch: current.Epoch}
	// A failure of Send ends the stream, and Recv returns the reason.
	_ = stream.Send(&pb.ReportRequest{Body: &pb.ReportRequest_Hello{Hello: hello}})
	ticks := time.NewTicker(coveragePeriod)
	defer ticks.Stop()
	for {
		current, now := s.assignment(), time.Now()
		coverage := &pb.Coverage{
			Fleet: current.Fleet, Shard: s.name, Epoch: current.Epoch, TimeNs: now.UnixNano(), ClockNs: now.UnixNano(),
			Devices: s.statuses(current, now),
		}
		_ = stream.Send(&pb.ReportRequest{Body: &pb.ReportRequest_Coverage{Coverage: coverage}})
		select {
		case err := <-ended:
			return err
		case <-ticks.C:
		case <-s.changed:
		}
	}
}

func (s *shard) keepReporting(hub pb.EvidenceClient) {
	for {
		log.Printf("hub: %v", s.report(hub))
		time.Sleep(redialPause)
	}
}

// identity reads the shard's certificate, and the authorities that it trusts.
func identity(folder string) (tls.Certificate, *x509.CertPool) {
	certificate, err := tls.LoadX509KeyPair(filepath.Join(folder, "tls.crt"), filepath.Join(folder, "tls.key"))
	check(err)
	authorities, err := os.ReadFile(filepath.Join(folder, "ca.crt"))
	check(err)
	trusted := x509.NewCertPool()
	if !trusted.AppendCertsFromPEM(authorities) {
		log.Fatalf("%s/ca.crt has no certificate", folder)
	}
	return certificate, trusted
}

// serve answers on a port of a shard's environment.
func serve(variable string, server *grpc.Server) {
	healthpb.RegisterHealthServer(server, health.NewServer())
	host := os.Getenv("EMBEREYE_HOST")
	if host == "[::]" {
		host = "" // IPv4 and IPv6, if the host has both
	}
	listener, err := net.Listen("tcp", host+":"+os.Getenv(variable))
	check(err)
	go func() { check(server.Serve(listener)) }()
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	s := &shard{
		fleet: os.Getenv("EMBEREYE_FLEET"), name: os.Getenv("EMBEREYE_SHARD"), started: time.Now(),
		changed: make(chan struct{}, 1), current: &pb.Assignment{},
	}
	certificate, trusted := identity(os.Getenv("EMBEREYE_IDENTITY"))
	control := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{certificate}, ClientCAs: trusted, ClientAuth: tls.RequireAndVerifyClientCert,
	})))
	pb.RegisterShardServer(control, s)
	serve("EMBEREYE_CONTROL_PORT", control)
	serve("EMBEREYE_GRPC_PORT", grpc.NewServer())
	hub, err := grpc.NewClient(os.Getenv("EMBEREYE_HUB"), grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{certificate}, RootCAs: trusted, ServerName: hubName,
	})))
	check(err)
	log.Printf("shard %s of %s", s.name, s.fleet)
	go s.keepReporting(pb.NewEvidenceClient(hub))
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	<-stop
}
