// Package control connects a device to an EmberEye hub, which a controller then steers: one State each period, one
// Command for it. Whenever there is no hub the device is told to go to its safe state.
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
	leastPause = 200 * time.Millisecond
	mostPause  = 5 * time.Second
)

// ReleasedError is the hub's reason for ending the association.
type ReleasedError struct{ Reason string }

func (e *ReleasedError) Error() string { return e.Reason }

// Device is what is steered. Its methods are called one at a time.
type Device interface {
	// Describe says what it can do and tell; it does not change.
	Describe() *pb.Actuator
	// Measure fills in Measured and Sensors.
	Measure(state *pb.State)
	// CarryOut does what the command says; the values are the device's own safe ones where command.Safe is set.
	CarryOut(command *pb.Command)
	// FallBack goes to the safe state: there is no hub, and err says why.
	FallBack(err error)
}

// Options say which hub, and who calls.
type Options struct {
	Address string        // "host:port" or "unix:PATH" of the hub's associations
	Token   string        // of the role operator
	Name    string        // of the actuator
	TLS     *tls.Config   // nil: the hub shows no certificate
	Timeout time.Duration // for each answer of the hub, after which it counts as gone; 0: one second
	Said    func(error)   // told why the device is in its safe state; nil: nobody is
}

// Run keeps device connected until ctx is done, and dials again with growing pauses where it is not.
// It returns ctx's error; the device is in its safe state then.
func Run(ctx context.Context, options Options, device Device) error {
	pause := leastPause
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
			pause = leastPause
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause/2 + rand.N(pause/2)):
		}
		pause = min(2*pause, mostPause)
	}
}

// session runs one association until it ends; it returns how many turns there were.
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
				return turns - 1, errors.New("the hub answered with what is no command of this device")
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

// releasable is every response of a hub's stream.
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
	// What the hub has said before it ended the connection says more than that it is broken.
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
