// Package serving runs the HTTP server of the administration, for the commands serve, relay and demo.
package serving

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/admin/web"
	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/cmd/postrider/internal/bounded"
	"github.com/postrider/postrider/cmd/postrider/internal/mcpserver"
	"github.com/postrider/postrider/config"
	"github.com/postrider/postrider/doctor"
	"github.com/postrider/postrider/inspect"
)

// Options describe a server.
type Options struct {
	Admin config.Admin
	// Name is the name of the store on pages.
	Name string
	// Principal, if it has a Subject, may sign in once with a code, on a loopback address; PrintTo receives its link.
	Principal admin.Principal
	PrintTo   io.Writer
	Version   string
	// Checks, Command and AuditFailed are those of admin.Config.
	Checks []doctor.Check
	// Others are further stores of the configuration, in which causes and effects of messages are searched for.
	Others      []inspect.Source
	Command     func(line string) string
	AuditFailed func(error)
	// Publish publishes messages, with a source for those without one; nil if nobody may decide about sagas.
	Publish func(ctx context.Context, source string, msgs []*postrider.Message) ([]string, error)
}

// source is that of messages that people cause.
const source = "postrider-admin"

// publish is that of admin.Config.
func (o Options) publish() func(context.Context, *postrider.Message) error {
	if o.Publish == nil {
		return nil
	}
	return func(ctx context.Context, m *postrider.Message) error {
		_, err := o.Publish(ctx, source, []*postrider.Message{m})
		return err
	}
}

// Limits of requests.
const (
	headerTimeout = 10 * time.Second
	readTimeout   = time.Minute
	writeTimeout  = 2 * time.Minute
	idleTimeout   = 2 * time.Minute
	headerBytes   = 16 << 10
	stopTimeout   = 5 * time.Second
	// connections is how many connections are open at most.
	connections = 256
)

// DefaultRole is the role of the printed link: who can write to a file may operate it.
func DefaultRole(b *backend.Outbox) admin.Role {
	if b.IsFile() {
		return admin.Operator
	}
	return admin.Viewer
}

// ErrUnsafe: the server would send sessions over a network without encryption.
var ErrUnsafe = errors.New("this address can be reached from other hosts: give --tls-cert and --tls-key, or --behind-tls-proxy " +
	"if a proxy in front of it ends TLS")

// Check reports what is wrong with the address and the files of TLS.
func (o Options) Check() error {
	a := o.Admin
	if err := config.CheckListen(a.Listen); err != nil {
		return fmt.Errorf("the address of the administration: %w", err)
	}
	if (a.TLSCert == "") != (a.TLSKey == "") {
		return errors.New("TLS needs both a certificate and its key")
	}
	if !loopback(a.Listen) && a.TLSCert == "" && !a.TLSProxy {
		return fmt.Errorf("serve on %s: %w", a.Listen, ErrUnsafe)
	}
	for _, rule := range Rules(a.Show) {
		if err := rule.Validate(); err != nil {
			return fmt.Errorf("the rules of admin.show: %w", err)
		}
	}
	return nil
}

// Server is a running server.
type Server struct {
	server  *http.Server
	service *admin.Service
	// URL is the address of the overview, Addr that of the listener.
	URL    string
	Addr   net.Addr
	served sync.WaitGroup
	cancel context.CancelFunc
	failed chan error
}

// Start serves the administration of a store until Close.
func Start(ctx context.Context, store backend.Store, o Options, logger *slog.Logger) (*Server, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	secure, local := o.Admin.TLSCert != "" || o.Admin.TLSProxy, loopback(o.Admin.Listen)
	key, err := sessionKey(o.Admin.SessionKeyFile)
	if err != nil {
		return nil, err
	}
	hosts := o.Admin.Hosts
	if local {
		hosts = append(append([]string(nil), web.Loopback...), hosts...)
	}
	provider, err := providerOf(o.Admin)
	if err != nil {
		return nil, err
	}
	service := admin.New(store, admin.Config{
		Name: o.Name, Show: Rules(o.Admin.Show), Checks: o.Checks, Command: o.Command, Publish: o.publish(), Logger: logger,
		AuditFailed: o.AuditFailed, Others: o.Others,
	})
	var agents http.Handler
	handler, err := web.New(service, web.Config{
		Mount: map[string]http.Handler{"/mcp": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { agents.ServeHTTP(w, r) })},
		Hosts: hosts, Provider: provider, Key: key, Listen: o.Admin.Listen, Secure: secure, Version: o.Version, Logger: logger,
		Environment: web.Environment{Name: o.Admin.Environment, Tone: tone(o.Admin.Environment)},
	})
	if err != nil {
		return nil, err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", o.Admin.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen for the administration: %w", err)
	}
	s := &Server{service: service, failed: make(chan error, 1), server: &http.Server{
		Handler: handler, ReadHeaderTimeout: headerTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: headerBytes, ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}}
	s.Addr = listener.Addr()
	s.URL = map[bool]string{true: "https", false: "http"}[o.Admin.TLSCert != ""] + "://" + listener.Addr().String() + "/"
	shown := ""
	if local {
		shown = s.URL
	}
	agents = mcpserver.New(service, handler, shown, o.Version).Handler()
	ctx, s.cancel = context.WithCancel(ctx)
	s.served.Go(func() { service.Run(ctx) })
	s.served.Go(func() {
		err := s.serve(bounded.Listener(listener, connections), o)
		if !errors.Is(err, http.ErrServerClosed) {
			s.failed <- err
		}
	})
	if local && o.Principal.Subject != "" && o.PrintTo != nil {
		code := handler.IssueCode(o.Principal)
		fmt.Fprintf(o.PrintTo, "Sign in as %s (%s) within 10 minutes, once:\n\n  %ssignin?%s\n\n", o.Principal, o.Principal.Role, s.URL,
			url.Values{"code": {code}}.Encode())
	}
	return s, nil
}

func (s *Server) serve(l net.Listener, o Options) error {
	if o.Admin.TLSCert != "" {
		return s.server.ServeTLS(l, o.Admin.TLSCert, o.Admin.TLSKey)
	}
	return s.server.Serve(l)
}

// Wait waits until ctx ends or the server fails.
func (s *Server) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-s.failed:
		return fmt.Errorf("serve the administration: %w", err)
	}
}

// Close stops the server and waits for it.
func (s *Server) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if s.server.Shutdown(ctx) != nil {
		_ = s.server.Close()
	}
	s.cancel()
	s.served.Wait()
}

// loopback reports whether only this host can reach an address.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// sessionKey reads the key of sessions: 32 bytes in base64, as "openssl rand -base64 32" writes them.
func sessionKey(file string) ([]byte, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the session key: %w", err)
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(key) != 32 {
		return nil, fmt.Errorf("the session key in %s is not 32 bytes in base64; create one with: openssl rand -base64 32", file)
	}
	return key, nil
}

// Rules are those of the configuration.
func Rules(show []config.Show) (out []admin.Rule) {
	for _, s := range show {
		out = append(out, admin.Rule{Type: s.Type, Show: s.Paths, All: s.All, Hide: s.Hide, Headers: s.Headers, Causes: s.Causes, Keys: admin.Role(s.Keys)})
	}
	return out
}

func tone(environment string) string {
	if strings.HasPrefix(strings.ToLower(environment), "prod") {
		return "production"
	}
	return "staging"
}
