package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"path/filepath"
	"syscall"
	"time"

	"github.com/outtail/outtail/event"
)

// askTimeout is how long Ask waits where its context has no earlier end.
const askTimeout = 15 * time.Second

// Ask puts a request to the process that runs with the data directory and reads its result into result (nil: not wanted).
// The error has ErrNotRunning in its chain when nobody listens; a Fault of the process comes back as a Fault.
func Ask(ctx context.Context, dir, name string, request, result any) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	body, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("encode request: %w", err)
	}
	path := filepath.Join(dir, SocketName)
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, dir) },
	}}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://outtail"+prefix+name, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("build request: %w", err)
	}
	resp, err := client.Do(r)
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return faultNotRunning(path)
	case errors.Is(ctx.Err(), context.Canceled):
		return ctx.Err()
	default:
		return noAnswer(path, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return noAnswer(path, err)
	}
	var a answer
	if err := json.Unmarshal(b, &a); err != nil || len(b) > maxAnswer {
		return faultFailed(name, "the answer of the running process is not understood")
	}
	if a.Fault != nil {
		return a.Fault.fault()
	}
	if result == nil {
		return nil
	}
	if err := json.Unmarshal(a.Result, result); err != nil {
		return faultFailed(name, "the answer of the running process is not understood")
	}
	return nil
}

// noAnswer keeps faults that say more.
func noAnswer(path string, err error) error {
	if f := event.AsFault(err); f != nil {
		return f
	}
	if errors.Is(err, fs.ErrPermission) {
		return faultDenied(path)
	}
	// It did not take the call, or took it and let the time pass. All else is a connection that was there and broke, for which the client
	// has many words.
	op, dialling := errors.AsType[*net.OpError](err)
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() || dialling && op.Op == "dial" {
		return faultNoAnswer(path, err)
	}
	return faultEnded(path, err)
}

func dial(ctx context.Context, dir string) (net.Conn, error) {
	name, release, err := reachable(dir, SocketName)
	if err != nil {
		return nil, err
	}
	defer release()
	return (&net.Dialer{}).DialContext(ctx, "unix", name)
}
