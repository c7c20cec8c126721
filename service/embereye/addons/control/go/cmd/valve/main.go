// Valve is a simulated valve with a lamp, a minimal example of a device. It prints its actions.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"embereye.dev/clients/go/control"
	pb "embereye.dev/clients/go/embereyev1"
)

type valve struct {
	opening, lamp float64
	period        time.Duration
}

func (v *valve) Describe() *pb.Actuator {
	return &pb.Actuator{
		PeriodNs: v.period.Nanoseconds(),
		Outputs: []*pb.Output{
			{Name: "valve", Kind: pb.Output_KIND_OPENING, Safe: 1}, // open: water flows without hub and controller
			{Name: "lamp", Kind: pb.Output_KIND_SWITCH},
		},
		Sensors: []*pb.Sensor{{Name: "pressure", Unit: "bar"}},
	}
}

func (v *valve) Measure(state *pb.State) {
	state.Measured = append(state.Measured[:0], v.opening, v.lamp)
	state.Sensors = append(state.Sensors[:0], 6-v.opening)
}

func (v *valve) set(opening, lamp float64, why string) {
	if opening != v.opening || lamp != v.lamp {
		v.opening, v.lamp = opening, lamp
		fmt.Printf("valve %.2f lamp %.0f: %s\n", opening, lamp, why)
	}
}

func (v *valve) CarryOut(command *pb.Command) {
	why := "steered"
	if command.Safe {
		why = "no controller"
	}
	v.set(command.Values[0], command.Values[1], why)
}

func (v *valve) FallBack(err error) { v.set(1, 0, err.Error()) }

func main() {
	device := &valve{}
	options := control.Options{Token: os.Getenv("EMBEREYE_TOKEN")}
	flag.StringVar(&options.Address, "hub", "127.0.0.1:50054", "the hub's association port: host:port or unix:PATH")
	flag.StringVar(&options.Name, "name", "valve", "name of the actuator")
	flag.DurationVar(&device.period, "period", 10*time.Millisecond, "time between two states")
	flag.Parse()
	options.Said = func(err error) { fmt.Fprintln(os.Stderr, "safe:", err) }
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	control.Run(ctx, options, device)
}
