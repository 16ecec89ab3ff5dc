package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/outtail/outtail/event"
)

// How long one side waits for the other.
const (
	readTimeout  = 10 * time.Second
	writeTimeout = 60 * time.Second // includes the work
)

// Handle answers one kind of request. The result becomes JSON; an error that is a Fault reaches the command as it is.
type Handle func(ctx context.Context, request json.RawMessage) (result any, err error)

// ServerOptions of a server.
type ServerOptions struct {
	// Dir is data_dir, locked by this process: a socket that lies there already belongs to one that is dead.
	Dir     string
	Version string
	// Handles by request name, such as "checkpoint/show".
	Handles map[string]Handle
	Logger  *slog.Logger // nil: nobody
}

// Server answers commands until it is closed.
type Server struct {
	path string
	http *http.Server
	done chan struct{} // closed when the serving goroutine has ended
}

// Serve begins to answer. The caller closes the server.
func Serve(o ServerOptions) (*Server, error) {
	log := o.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	path := filepath.Join(o.Dir, SocketName)
	l, err := listen(o.Dir, path)
	if err != nil {
		return nil, err
	}
	s := &Server{
		path: path,
		http: &http.Server{
			Handler:           router(o, log),
			ReadHeaderTimeout: readTimeout,
			ReadTimeout:       readTimeout,
			WriteTimeout:      writeTimeout,
			IdleTimeout:       readTimeout,
			MaxHeaderBytes:    16 << 10,
			ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		},
		done: make(chan struct{}),
	}
	// Owned by the server; ends in Close, which waits for it.
	go func() {
		defer close(s.done)
		if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Error("commands can no longer ask this process", "socket", path, "err", err)
		}
	}()
	return s, nil
}

// listen makes the socket in a directory of our own and moves it into place when its mode is right: there is no moment at
// which another user could connect, and what a dead process left is replaced.
func listen(dir, path string) (net.Listener, error) {
	const nest = SocketName + ".new"
	nestDir := filepath.Join(dir, nest)
	if err := os.RemoveAll(nestDir); err != nil {
		return nil, faultListen(path, err)
	}
	if err := os.Mkdir(nestDir, 0o700); err != nil {
		return nil, faultListen(path, err)
	}
	defer os.RemoveAll(nestDir)
	name, release, err := reachable(nestDir, "s")
	if err != nil {
		return nil, err
	}
	defer release()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
	if err != nil {
		return nil, faultListen(path, err)
	}
	l.SetUnlinkOnClose(false) // it will not be there under that name; Close removes it
	draft := filepath.Join(nestDir, "s")
	if err := errors.Join(os.Chmod(draft, 0o600), os.Rename(draft, path)); err != nil {
		_ = l.Close()
		return nil, faultListen(path, err)
	}
	return l, nil
}

// Close stops listening, waits for requests under way until ctx ends, and removes the socket.
func (s *Server) Close(ctx context.Context) error {
	_ = os.Remove(s.path)
	err := s.http.Shutdown(ctx)
	if err != nil {
		_ = s.http.Close()
	}
	<-s.done
	return err
}

func router(o ServerOptions, log *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, ok := strings.CutPrefix(r.URL.Path, prefix)
		h := o.Handles[name]
		if !ok || h == nil || r.Method != http.MethodPost {
			reply(w, log, nil, faultUnknown(name, o.Version))
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
		if err != nil {
			reply(w, log, nil, faultFailed(name, "the request could not be read"))
			return
		}
		result, err := call(r.Context(), name, h, body, log)
		reply(w, log, result, err)
	})
}

// call keeps a handle that panics from taking the pipelines with it.
func call(ctx context.Context, name string, h Handle, body []byte, log *slog.Logger) (result any, err error) {
	defer func() {
		if r := recover(); r != nil {
			log.Error("a request failed", "request", name, "panic", fmt.Sprint(r))
			err = faultFailed(name, "the request failed inside the process")
		}
	}()
	return h(ctx, body)
}

func reply(w http.ResponseWriter, log *slog.Logger, result any, err error) {
	var a answer
	if err == nil {
		a.Result, err = json.Marshal(result)
	}
	status := http.StatusOK
	if err != nil {
		status = http.StatusUnprocessableEntity
		f := event.AsFault(err)
		if f == nil {
			f = faultFailed("", err.Error())
		}
		a = answer{Fault: toWire(f)}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(a); err != nil {
		log.Debug("a command did not take its answer", "err", err)
	}
}
