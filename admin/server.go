package admin

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// How long a client may take: nobody who opens connections and says nothing can pile them up.
const (
	headerTimeout = 5 * time.Second
	readTimeout   = 10 * time.Second
	writeTimeout  = 30 * time.Second
	idleTimeout   = 60 * time.Second
	maxHeader     = 16 << 10
)

// Options of the server.
type Options struct {
	// Listen is HOST:PORT; "" turns the server off.
	Listen  string
	Version string
	// Metrics serves /metrics.
	Metrics http.Handler
	// Status tells what each pipeline is doing now. It is called for each /readyz, from any goroutine, and must not block.
	Status func() []PipelineStatus
	Logger *slog.Logger     // nil: nobody
	Now    func() time.Time // nil: time.Now
}

// Server serves until Shutdown.
type Server struct {
	addr net.Addr
	http *http.Server
	done chan struct{} // closed when the serving goroutine has ended
}

// Serve listens and begins to answer. It returns nil and no error where Listen is ""; the methods of a nil Server do
// nothing. An address that cannot be used is a Fault of class Environment.
func Serve(o Options) (*Server, error) {
	if o.Listen == "" {
		return nil, nil
	}
	log, now := o.Logger, o.Now
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if now == nil {
		now = time.Now
	}
	l, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return nil, faultListen(o.Listen, err)
	}
	s := &Server{
		addr: l.Addr(),
		http: &http.Server{
			Handler:           routes(o, now()),
			ReadHeaderTimeout: headerTimeout,
			ReadTimeout:       readTimeout,
			WriteTimeout:      writeTimeout,
			IdleTimeout:       idleTimeout,
			MaxHeaderBytes:    maxHeader,
			ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		},
		done: make(chan struct{}),
	}
	// Owned by the server; ends in Shutdown, which waits for it.
	go func() {
		defer close(s.done)
		if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Error("health and metrics are no longer served", "listen", o.Listen, "err", err)
		}
	}()
	return s, nil
}

// Addr is where the server listens, which matters where the port was 0; "" of a nil server.
func (s *Server) Addr() string {
	if s == nil {
		return ""
	}
	return s.addr.String()
}

// Shutdown stops listening and waits for requests under way until ctx ends; then it cuts them.
func (s *Server) Shutdown(ctx context.Context) error {
	if s == nil {
		return nil
	}
	err := s.http.Shutdown(ctx)
	if err != nil {
		_ = s.http.Close()
	}
	<-s.done
	return err
}

func routes(o Options, started time.Time) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/{$}", index(o.Version))
	mux.Handle("/healthz", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, "ok\n")
	}))
	mux.Handle("/readyz", readyz(o.Status, started))
	mux.Handle("/metrics", o.Metrics)
	return readOnly(mux)
}

// readOnly lets through what only looks.
func readOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "only GET and HEAD", http.StatusMethodNotAllowed)
			return
		}
		next.ServeHTTP(w, r)
	})
}
