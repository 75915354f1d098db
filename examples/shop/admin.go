package shop

import (
	"net"
	"net/http"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/admin/web"
)

// administer serves the administration of the service's database at /postrider/, on a loopback address only: whoever reaches it may read,
// and decide with the command line. A program on a network has an Authorizer of its own.
func (s *Service) administer() error {
	if addr, ok := s.server.Addr().(*net.TCPAddr); !ok || !addr.IP.IsLoopback() {
		return nil
	}
	handler, err := web.New(admin.New(s.db.Store, admin.Config{Name: s.Name, Logger: s.cfg.Logger}), web.Config{
		Prefix: "/postrider", Hosts: web.Loopback, Authorizer: reader{}, Logger: s.cfg.Logger,
	})
	if err == nil {
		s.mux.Handle("/postrider/", handler)
	}
	return err
}

// reader is everybody, and may read.
type reader struct{}

// Authorize implements web.Authorizer.
func (reader) Authorize(*http.Request) (admin.Principal, error) {
	return admin.Principal{Issuer: "shop", Subject: "visitor", Role: admin.Viewer}, nil
}
