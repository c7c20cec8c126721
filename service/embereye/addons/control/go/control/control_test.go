package control

import (
	"bufio"
	"context"
	"errors"
	"net"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"

	pb "embereye.dev/clients/go/embereyev1"
)

type valve struct {
	opened []float64
	fell   chan error
}

func (v *valve) Describe() *pb.Actuator {
	return &pb.Actuator{
		PeriodNs: int64(time.Millisecond),
		Outputs:  []*pb.Output{{Name: "valve", Kind: pb.Output_KIND_OPENING}},
		Sensors:  []*pb.Sensor{{Name: "pressure", Unit: "bar"}},
	}
}
func (v *valve) Measure(state *pb.State)      { state.Measured, state.Sensors = []float64{0}, []float64{2.5} }
func (v *valve) CarryOut(command *pb.Command) { v.opened = append(v.opened, command.Values...) }
func (v *valve) FallBack(err error)           { v.fell <- err }

// hub serves `answers` one after the other, then nothing more.
func hub(t *testing.T, answers ...proto.Message) Options {
	path := filepath.Join(t.TempDir(), "association")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				reader := bufio.NewReader(connection)
				for number, answer := range answers {
					request := proto.Message(&pb.ControlRequest{})
					if number == 0 {
						request = &pb.Associate{}
					}
					if protodelim.UnmarshalFrom(reader, request) != nil {
						return
					}
					protodelim.MarshalTo(connection, answer)
				}
			}()
		}
	}()
	return Options{Address: "unix:" + path, Token: "token", Name: "valve", Timeout: 50 * time.Millisecond}
}

func welcome() *pb.ControlResponse {
	return &pb.ControlResponse{Body: &pb.ControlResponse_Welcome{Welcome: &pb.Welcome{Version: version}}}
}

func command(values ...float64) *pb.ControlResponse {
	return &pb.ControlResponse{Body: &pb.ControlResponse_Command{Command: &pb.Command{Values: values}}}
}

func run(t *testing.T, options Options) (*valve, error) {
	device := &valve{fell: make(chan error, 100)}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { Run(ctx, options, device); close(ended) }()
	why := <-device.fell
	cancel()
	<-ended
	return device, why
}

func TestADeviceGoesToItsSafeStateWhenTheHubFallsSilent(t *testing.T) {
	device, why := run(t, hub(t, &pb.Associated{}, welcome(), command(0.5), command(0.75)))
	if len(device.opened) < 2 || device.opened[0] != 0.5 || device.opened[1] != 0.75 {
		t.Fatalf("carried out %v", device.opened)
	}
	var slow net.Error
	if !errors.As(why, &slow) || !slow.Timeout() {
		t.Fatalf("fell back for %v", why)
	}
}

func TestADeviceIsToldWhyItIsReleased(t *testing.T) {
	released := &pb.Released{Reason: "valve is somebody else's"}
	for _, answers := range [][]proto.Message{
		{&pb.Associated{Released: released}},
		{&pb.Associated{}, &pb.ControlResponse{Released: released}},
		{&pb.Associated{}, welcome(), &pb.ControlResponse{Released: released}},
	} {
		_, why := run(t, hub(t, answers...))
		var reason *ReleasedError
		if !errors.As(why, &reason) || reason.Reason != released.Reason {
			t.Fatalf("fell back for %v", why)
		}
	}
}

func TestACommandThatIsNotTheDevicesIsNotCarriedOut(t *testing.T) {
	for _, answer := range []*pb.ControlResponse{command(0.5, 0.5), command(), welcome()} {
		device, why := run(t, hub(t, &pb.Associated{}, welcome(), answer))
		if len(device.opened) > 0 || why == nil {
			t.Fatalf("carried out %v, fell back for %v", device.opened, why)
		}
	}
}

func TestWithoutAHubTheDeviceIsSafe(t *testing.T) {
	if _, why := run(t, Options{Address: "unix:/nowhere/association", Name: "valve"}); why == nil {
		t.Fatal("fell back for nothing")
	}
}
