package admin_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/admin"
)

// TestSagaRolesOfTokens: a token has the saga roles that it was created with, which is on record; those of agents have none.
func TestSagaRolesOfTokens(t *testing.T) {
	t.Parallel()
	s, service := withDead(t, 0)
	roles := []string{"finance", "legal counsel"}
	text, _, err := service.CreateToken(t.Context(), boss, "ben", admin.Viewer, roles, admin.UsePeople, time.Hour)
	must(t, err)
	p, err := service.Authenticate(t.Context(), text, admin.UsePeople)
	if must(t, err); !slices.Equal(p.SagaRoles, roles) {
		t.Errorf("principal %+v", p)
	}
	if on := audit(t, s)[0].On; on != "token ben (viewer, finance, legal counsel)" {
		t.Errorf("on record: %q", on)
	}
	for _, wrong := range [][]string{{""}, {" "}, {"finance", "\x00"}, {strings.Repeat("r", 257)}} {
		if _, _, err := service.CreateToken(t.Context(), boss, "ben", admin.Viewer, wrong, admin.UsePeople, time.Hour); !errors.Is(err, admin.ErrInput) {
			t.Errorf("saga roles %q: %v", wrong, err)
		}
	}
	if _, _, err := service.CreateToken(t.Context(), boss, "assistant", admin.Operator, roles, admin.UseAgents, time.Hour); !errors.Is(err, admin.ErrInput) {
		t.Errorf("saga roles of an agent: %v", err)
	}
}
