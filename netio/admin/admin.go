package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"felix/fanout"
	"felix/netio"
	"felix/replicate"
)

// Bounds of the listener.
const (
	maxConnections  = 64
	maxHeaderBytes  = 16 << 10
	maxBodyBytes    = 64 << 10
	maxProfile      = 60 * time.Second
	headerTimeout   = 5 * time.Second
	bodyTimeout     = 10 * time.Second
	answerTimeout   = 30 * time.Second // of everything but profiles
	idleTimeout     = 60 * time.Second
	shutdownTimeout = 2 * time.Second // for requests that are in work when Close is called
)

// Config is what a Server is built from. All fields but Logger are required.
type Config struct {
	// Listen is the address to bind. Port 0 takes a free one.
	Listen netip.AddrPort
	// Catalog is what the REST verbs read and change.
	Catalog *replicate.Catalog
	// DefaultOnSlow is the rule for a full queue of in-memory streams that name none.
	DefaultOnSlow fanout.Policy
	// Subscriptions lists subscriptions; see netio.Server.Subscriptions.
	Subscriptions func(context.Context, netio.SubscriptionQuery) (page []netio.SubscriptionInfo, more bool, err error)
	// Readiness answers /ready. It must not block.
	Readiness func() Readiness
	// WriteMetrics writes Prometheus text.
	WriteMetrics func(w io.Writer)
	// Quotas are what /v1/tenants/T/quota reads and changes.
	Quotas Quotas
	// Logger gets what goes wrong inside net/http. Nil means none.
	Logger *slog.Logger
}

// Readiness is the answer to /ready.
type Readiness struct {
	Ready    bool     `json:"ready"`
	Reasons  []string `json:"reasons"`  // why not; empty when ready
	Warnings []string `json:"warnings"` // allowed, and worth knowing
}

// Server is the admin listener. Its methods may be called from any goroutine.
type Server struct {
	config   Config
	listener net.Listener
	http     http.Server
	served   sync.WaitGroup
}

// Listen binds the address. The error says what to do when it cannot be had. Nothing is answered before Start.
func Listen(config Config) (*Server, error) {
	listener, err := net.Listen("tcp", config.Listen.String())
	if err != nil {
		return nil, bindError(config.Listen, err)
	}
	s := &Server{config: config, listener: newBoundedListener(listener, maxConnections)}
	logger := config.Logger
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	s.http = http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       bodyTimeout,
		WriteTimeout:      answerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
	return s, nil
}

// bindError says which address cannot be had, why, and what to do.
func bindError(addr netip.AddrPort, err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("admin is %s, and that port is in use; stop the process that has it, or choose another port (0 takes a free one)", addr)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("admin is %s, which is no address of this machine; choose one that is", addr)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("admin is %s, and this user may not bind that port; choose a port from 1024 up", addr)
	}
	return fmt.Errorf("admin is %s, which cannot be bound (%w); choose another address", addr, err)
}

// Start answers requests until Close.
func (s *Server) Start() {
	s.served.Go(func() {
		if err := s.http.Serve(s.listener); err != nil && !errors.Is(err, http.ErrServerClosed) && s.config.Logger != nil {
			s.config.Logger.Error("admin: the listener ended; health, metrics and REST are gone until a restart", "error", err)
		}
	})
}

// Addr is the address that is bound.
func (s *Server) Addr() netip.AddrPort {
	addr := s.listener.Addr().(*net.TCPAddr).AddrPort()
	return netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port())
}

// Close takes no more requests, gives those in work 2 s, ends every connection and returns when all are gone.
func (s *Server) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	err := s.http.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = s.http.Close() // a profile or a slow reader
	}
	s.listener.Close() // when Start was never called, Shutdown did not know of it
	s.served.Wait()
	return err
}

// handler routes requests.
func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/", s.index)
	mux.Handle("/live", methods{http.MethodGet: s.live})
	mux.Handle("/ready", methods{http.MethodGet: s.ready})
	mux.Handle("/metrics", methods{http.MethodGet: s.metrics})
	mux.Handle("/debug/pprof/", methods{http.MethodGet: profile(pprof.Index)})
	mux.Handle("/debug/pprof/cmdline", methods{http.MethodGet: pprof.Cmdline})
	mux.Handle("/debug/pprof/profile", methods{http.MethodGet: profile(pprof.Profile)})
	mux.Handle("/debug/pprof/symbol", methods{http.MethodGet: pprof.Symbol, http.MethodPost: pprof.Symbol})
	mux.Handle("/debug/pprof/trace", methods{http.MethodGet: profile(pprof.Trace)})
	mux.Handle("/v1/tenants", methods{http.MethodGet: s.listTenants, http.MethodPost: s.createTenant})
	mux.Handle("/v1/tenants/{tenant}", methods{http.MethodGet: s.getTenant, http.MethodDelete: s.deleteTenant})
	mux.Handle("/v1/tenants/{tenant}/quota", methods{http.MethodGet: s.getQuota, http.MethodPut: s.putQuota, http.MethodDelete: s.deleteQuota})
	const namespaces = "/v1/tenants/{tenant}/namespaces"
	mux.Handle(namespaces, methods{http.MethodGet: s.listNamespaces, http.MethodPost: s.createNamespace})
	mux.Handle(namespaces+"/{namespace}", methods{http.MethodGet: s.getNamespace, http.MethodDelete: s.deleteNamespace})
	const streams = namespaces + "/{namespace}/streams"
	mux.Handle(streams, methods{http.MethodGet: s.listStreams, http.MethodPost: s.createStream})
	mux.Handle(streams+"/{stream}", methods{
		http.MethodGet: s.getStream, http.MethodPatch: s.patchStream, http.MethodDelete: s.deleteStream,
	})
	subscriptions := methods{http.MethodGet: s.listSubscriptions}
	mux.Handle(namespaces+"/{namespace}/subscriptions", subscriptions)
	mux.Handle(streams+"/{stream}/subscriptions", subscriptions)
	return s.guard(mux)
}

// guard refuses what a browser brings from elsewhere; doc.go says why.
func (s *Server) guard(next http.Handler) http.Handler {
	origin := http.NewCrossOriginProtection()
	loopback := s.Addr().Addr().IsLoopback()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if loopback && !localHost(r.Host) {
			writeError(w, http.StatusForbidden, "forbidden", fmt.Sprintf("host %q is a name; ask for this listener by its address, http://%s", r.Host, s.Addr()))
			return
		}
		if err := origin.Check(r); err != nil {
			writeError(w, http.StatusForbidden, "forbidden", "this request comes from another web site; send it from a tool, or from a page of this listener")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// localHost reports whether the Host of a request is an IP address or localhost.
func localHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	_, err := netip.ParseAddr(host)
	return err == nil || strings.EqualFold(host, "localhost")
}

// methods routes a path by method and answers others in JSON.
type methods map[string]http.HandlerFunc

func (m methods) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet // net/http leaves the body out
	}
	if handle, ok := m[method]; ok {
		handle(w, r)
		return
	}
	var allowed []string
	for _, known := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		if _, ok := m[known]; ok {
			allowed = append(allowed, known)
		}
	}
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	writeError(w, http.StatusMethodNotAllowed, "method_not_allowed", fmt.Sprintf("%s takes %s, not %s", r.URL.Path, strings.Join(allowed, ", "), r.Method))
}

func (s *Server) index(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/" {
		writeError(w, http.StatusNotFound, "not_found", fmt.Sprintf("there is nothing at %s; GET / lists what there is", r.URL.Path))
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	io.WriteString(w, "felix\n\n/live\n/ready\n/metrics\n/debug/pprof/\n/v1/tenants\n"+
		"/v1/tenants/default/quota\n/v1/tenants/default/namespaces\n/v1/tenants/default/namespaces/default/streams\n")
}

func (s *Server) live(w http.ResponseWriter, r *http.Request) {
	writeJSON(w, http.StatusOK, struct {
		Live bool `json:"live"`
	}{true})
}

func (s *Server) ready(w http.ResponseWriter, r *http.Request) {
	answer := s.config.Readiness()
	if answer.Reasons == nil {
		answer.Reasons = []string{}
	}
	if answer.Warnings == nil {
		answer.Warnings = []string{}
	}
	status := http.StatusOK
	if !answer.Ready {
		status = http.StatusServiceUnavailable
	}
	writeJSON(w, status, answer)
}

func (s *Server) metrics(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	s.config.WriteMetrics(w)
}

// profile bounds the seconds of a profile. pprof itself moves the deadline for writing as far as it needs; the one for
// reading is lifted here, since it would end the request's context in the middle.
func profile(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if text := r.FormValue("seconds"); text != "" {
			seconds, err := strconv.ParseFloat(text, 64)
			if err != nil || !(seconds > 0 && seconds <= maxProfile.Seconds()) {
				writeError(w, http.StatusBadRequest, "invalid_request", fmt.Sprintf("seconds is %q; give a number above 0, at most %v", text, maxProfile.Seconds()))
				return
			}
		}
		if err := http.NewResponseController(w).SetReadDeadline(time.Time{}); err != nil {
			writeError(w, http.StatusInternalServerError, "internal", "the time limit of this connection cannot be lifted: "+err.Error())
			return
		}
		next(w, r)
	}
}

// writeJSON answers with a body. A client that is gone is nobody's error.
func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.Encode(body)
}

// failure is the body of every error.
type failure struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

func writeError(w http.ResponseWriter, status int, code, message string) {
	writeJSON(w, status, failure{code, message})
}

// boundedListener accepts a connection only while fewer than its bound are open.
type boundedListener struct {
	net.Listener
	places chan struct{} // one token for each open connection
	closed chan struct{}
	once   sync.Once
}

func newBoundedListener(l net.Listener, bound int) *boundedListener {
	return &boundedListener{Listener: l, places: make(chan struct{}, bound), closed: make(chan struct{})}
}

func (l *boundedListener) Accept() (net.Conn, error) {
	select {
	case l.places <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	conn, err := l.Listener.Accept()
	if err != nil {
		<-l.places
		return nil, err
	}
	return &boundedConn{Conn: conn, places: l.places}, nil
}

func (l *boundedListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// boundedConn gives its place back once.
type boundedConn struct {
	net.Conn
	places chan struct{}
	once   sync.Once
}

func (c *boundedConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { <-c.places })
	return err
}
