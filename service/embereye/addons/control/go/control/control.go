// Package control connects a device to an EmberEye hub, so that a controller can steer it: it sends one State per period and
// receives one Command for each. Without a hub, the device goes to its safe state.
package control

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"

	pb "embereye.dev/clients/go/embereyev1"
)

const (
	call    = "embereye.v1.Control/Session"
	framing = 1
	version = 2

	maxMessage = 1 << 20 // bytes
	minPause   = 200 * time.Millisecond
	maxPause   = 5 * time.Second
)

// ReleasedError is the hub's reason for ending the association.
type ReleasedError struct{ Reason string }

func (e *ReleasedError) Error() string { return e.Reason }

// Device is a steered device. Its methods are called one at a time.
type Device interface {
	// Describe returns its outputs and sensors, which do not change.
	Describe() *pb.Actuator
	// Measure fills in Measured and Sensors.
	Measure(state *pb.State)
	// CarryOut executes the command; if command.Safe is set, its values are the device's safe values.
	CarryOut(command *pb.Command)
	// FallBack goes to the safe state, because there is no hub; err is the reason.
	FallBack(err error)
}

// Options are the hub's address and the caller's credentials.
type Options struct {
	Address string        // "host:port" or "unix:PATH" of the hub's associations
	Token   string        // of the role operator
	Name    string        // of the actuator
	TLS     *tls.Config   // nil: without TLS
	Timeout time.Duration // longest wait for each answer of the hub; 0: one second
	Said    func(error)   // called with the reason of each fallback; may be nil
}

// Run connects device until ctx is done, and dials again with growing pauses if the connection fails.
// It returns ctx's error; the device is then in its safe state.
func Run(ctx context.Context, options Options, device Device) error {
	pause := minPause
	for {
		turns, err := session(ctx, options, device)
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		device.FallBack(err)
		if ctx.Err() != nil {
			return err
		}
		if options.Said != nil {
			options.Said(err)
		}
		if turns > 0 {
			pause = minPause
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause/2 + rand.N(pause/2)):
		}
		pause = min(2*pause, maxPause)
	}
}

// session runs one association until it ends; it returns the number of turns.
func session(ctx context.Context, options Options, device Device) (turns uint64, err error) {
	timeout := options.Timeout
	if timeout == 0 {
		timeout = time.Second
	}
	connection, err := dial(ctx, options, timeout)
	if err != nil {
		return 0, err
	}
	defer connection.Close()
	defer context.AfterFunc(ctx, func() { connection.Close() })()

	link := &link{Conn: connection, reader: bufio.NewReaderSize(connection, 16<<10), timeout: timeout}
	if err := link.exchange(
		&pb.Associate{Version: framing, Token: options.Token, Call: call}, &pb.Associated{},
	); err != nil {
		return 0, err
	}
	actuator := device.Describe()
	handshake := &pb.Handshake{Name: options.Name, Version: version, Side: &pb.Handshake_Actuator{Actuator: actuator}}
	answer := &pb.ControlResponse{}
	if err := link.exchange(
		&pb.ControlRequest{Body: &pb.ControlRequest_Handshake{Handshake: handshake}}, answer,
	); err != nil {
		return 0, err
	}
	period := time.NewTicker(time.Duration(actuator.PeriodNs))
	defer period.Stop()
	state := &pb.State{}
	request := &pb.ControlRequest{Body: &pb.ControlRequest_State{State: state}}
	for {
		select {
		case <-ctx.Done():
			return turns, ctx.Err()
		case now := <-period.C:
			turns++
			state.Tick, state.TimeNs = turns, now.UnixNano()
			device.Measure(state)
			if err := link.exchange(request, answer); err != nil {
				return turns - 1, err
			}
			command := answer.GetCommand()
			if command == nil || len(command.Values) != len(actuator.Outputs) {
				return turns - 1, errors.New("the hub's answer is not a command for this device")
			}
			state.Sequence = command.Sequence
			device.CarryOut(command)
		}
	}
}

func dial(ctx context.Context, options Options, timeout time.Duration) (net.Conn, error) {
	dialer := &net.Dialer{Timeout: timeout}
	if path, unix := strings.CutPrefix(options.Address, "unix:"); unix {
		return dialer.DialContext(ctx, "unix", path)
	}
	if options.TLS != nil {
		return (&tls.Dialer{NetDialer: dialer, Config: options.TLS}).DialContext(ctx, "tcp", options.Address)
	}
	return dialer.DialContext(ctx, "tcp", options.Address)
}

type link struct {
	net.Conn
	reader  *bufio.Reader
	timeout time.Duration
}

// releasable is a response of any of the hub's streams.
type releasable interface {
	proto.Message
	GetReleased() *pb.Released
}

// exchange sends request and reads its answer, both within the timeout.
func (l *link) exchange(request proto.Message, answer releasable) error {
	if err := l.SetDeadline(time.Now().Add(l.timeout)); err != nil {
		return err
	}
	_, written := protodelim.MarshalTo(l, request)
	// The hub's last message explains more than a write error, so read it first.
	if err := (protodelim.UnmarshalOptions{MaxSize: maxMessage}).UnmarshalFrom(l.reader, answer); err != nil {
		if written != nil {
			err = written
		}
		return fmt.Errorf("the hub does not answer: %w", err)
	}
	if released := answer.GetReleased(); released != nil {
		return &ReleasedError{released.Reason}
	}
	return written
}
