package config

import (
	"maps"
	"reflect"
	"strings"
	"testing"
)

func TestEnvironmentWinsOverFile(t *testing.T) {
	t.Parallel()
	c, warnings := parse(t, full,
		"POSTRIDER_STORE_URL=postrider://elsewhere", "POSTRIDER_RELAYS_TO_NATS_CONCURRENCY=7", "POSTRIDER_RELAYS_TO_AUDIT_TOPICS=a, b",
		"POSTRIDER_RELAYS_TO_AUDIT_PUBLISHER=nats://x", "POSTRIDER_RELAYS_TO_AUDIT_PUBLISHER_OPTIONS_STREAM=S",
		"POSTRIDER_SERVICE_HOST=10.0.0.1", "POSTRIDER_LOG_LEVL=debug", "HOME=/")
	if c.Store.URL != "postrider://elsewhere" || c.Relays[0].Concurrency != 7 || c.Relays[1].Publisher.URL != "nats://x" ||
		c.Relays[1].Publisher.Options["stream"] != "S" || !reflect.DeepEqual(c.Relays[1].Topics, []string{"a", "b"}) {
		t.Errorf("read %+v", c)
	}
	if len(warnings) != 1 || !strings.Contains(warnings[0], "did you mean POSTRIDER_LOG_LEVEL?") {
		t.Errorf("warnings %q", warnings)
	}
}

// TestMappingsFromTheEnvironment: the names of a mapping, such as groups at a provider of sign-ins, cannot be part of a variable's name.
func TestMappingsFromTheEnvironment(t *testing.T) {
	t.Parallel()
	c, warnings := parse(t, full, "POSTRIDER_ADMIN_OIDC_ROLES=shop-oncall=operator, Shop.Admins=admin", "POSTRIDER_ADMIN_OIDC_ROLES_STREAM=x")
	if want := map[string]string{"shop-oncall": "operator", "Shop.Admins": "admin"}; !maps.Equal(c.Admin.OIDC.Roles, want) {
		t.Errorf("roles %v, want %v", c.Admin.OIDC.Roles, want)
	}
	if len(warnings) != 1 || !strings.Contains(warnings[0], "POSTRIDER_ADMIN_OIDC_ROLES_STREAM stands for no key") {
		t.Errorf("warnings %q", warnings)
	}
	for _, text := range []string{"shop-oncall", "=operator", "a=viewer,b="} {
		const want = "environment POSTRIDER_ADMIN_OIDC_ALLOW: admin.oidc.allow: "
		if _, _, err := Parse("postrider.yaml", []byte(full), []string{"POSTRIDER_ADMIN_OIDC_ALLOW=" + text}); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s…", text, err, want)
		}
	}
}

// TestVariablesOfTwoKeys: names that differ only in what is _ in a variable can be used, but not set by the variable that both have.
func TestVariablesOfTwoKeys(t *testing.T) {
	t.Parallel()
	for _, other := range []string{"to_nats", "to.nats"} {
		text := strings.Replace(full, "name: to-audit", "name: "+other, 1)
		if text == full {
			t.Fatal("the example has no relay to-audit")
		}
		parse(t, text, "POSTRIDER_LOG_LEVEL=debug")
		_, _, err := Parse("postrider.yaml", []byte(text), []string{"POSTRIDER_RELAYS_TO_NATS_CONCURRENCY=7"})
		const want = "environment POSTRIDER_RELAYS_TO_NATS_CONCURRENCY: relays[0].concurrency: the variable stands for relays[1].concurrency too"
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s…", other, err, want)
		}
	}
}
