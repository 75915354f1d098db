package backend

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/config"
)

func TestLocate(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]location{
		"sqlite:shop.db":                          {kind: "sqlite", dsn: "shop.db", shown: "sqlite:shop.db"},
		"sqlite:///var/a%20b.db":                  {kind: "sqlite", dsn: "/var/a b.db", shown: "sqlite:///var/a%20b.db"},
		"sqlite:x.db?partitions=3":                {kind: "sqlite", dsn: "x.db", shown: "sqlite:x.db?partitions=3", store: config.Store{Partitions: 3}},
		"postgres://u:secret@h/d":                 {kind: "postgres", dsn: "postgres://u:secret@h/d", shown: "postgres://u@h/d"},
		"postgresql://h/d?a=1":                    {kind: "postgres", dsn: "postgresql://h/d?a=1", shown: "postgresql://h/d?a=1"},
		"postgres://h/d?password=secret":          {kind: "postgres", dsn: "postgres://h/d?password=secret", shown: "postgres://h/d"},
		"postgres://h/d?prefix=p_":                {kind: "postgres", dsn: "postgres://h/d", shown: "postgres://h/d?prefix=p_", store: config.Store{Prefix: "p_"}},
		"postgres://h/d?notify=5ms":               {kind: "postgres", dsn: "postgres://h/d", shown: "postgres://h/d?notify=5ms", store: config.Store{Notify: new(5 * time.Millisecond)}},
		"postgres://h/d?notify=0s":                {kind: "postgres", dsn: "postgres://h/d", shown: "postgres://h/d?notify=0s", store: config.Store{Notify: new(time.Duration(0))}},
		"postgres://h/d?deliver_after_flush=true": {kind: "postgres", dsn: "postgres://h/d", shown: "postgres://h/d?deliver_after_flush=true", store: config.Store{DeliverAfterFlush: true}},
		"mysql://u:secret@h/d?prefix=p_&tls=true": {kind: "mysql", dsn: "mysql://u:secret@h/d?tls=true", shown: "mysql://u@h/d?prefix=p_&tls=true", store: config.Store{Prefix: "p_"}},
		"mariadb://h:3307/d":                      {kind: "mysql", dsn: "mariadb://h:3307/d", shown: "mariadb://h:3307/d"},
	} {
		got, err := locate(config.Store{URL: url})
		want.store.URL = url
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s is read as %+v, %v; want %+v", url, got, err, want)
		}
	}
}

func TestSettingsWinOverTheURL(t *testing.T) {
	t.Parallel()
	l, err := locate(config.Store{URL: "postgres://h/d?schema=a&partitions=3", Schema: "b", Partitions: 4})
	if err != nil || l.store.Schema != "b" || l.store.Partitions != 4 || l.dsn != "postgres://h/d" {
		t.Errorf("read as %+v, %v", l, err)
	}
}

func TestLocateRefuses(t *testing.T) {
	t.Parallel()
	for url, words := range map[string]string{
		"shop.db":                              "is not the URL of a store",
		"sqllite:shop.db":                      "is not the URL of a store (did you mean sqlite:?); allowed",
		"postgress://h/d":                      `"postgress" is not a kind of store (did you mean postgres:?); allowed`,
		"memory:":                              `"memory" is not a kind of store; allowed`,
		"oracle://h/d":                         `"oracle" is not a kind of store; allowed`,
		"mysql://h":                            "names no host or no database",
		"mysql://h/d?schema=a":                 "settings of PostgreSQL only",
		"sqlite:":                              "names no file",
		"sqlite://shop.db":                     "with three slashes",
		"sqlite:x.db?mode=ro":                  "unknown option in the URL; allowed: partitions, prefix",
		"sqlite:x.db?schema=a":                 "settings of PostgreSQL only",
		"postgres://h/d?partitions=0":          "allowed: 1 to 1024",
		"postgres://h/d?notify=often":          "allowed: 0s to 1m",
		"postgres://h/d?deliver_after_flush=x": "allowed: true, false",
		"mysql://h/d?deliver_after_flush=true": "settings of PostgreSQL only",
		"postgres://u:secret@h:bad/d":          "cannot be read",
		"postgres://u:se%zzcret@h/d":           "cannot be read",
		"postgres://h/d?partitions=abc":        "out of bounds",
		"postgres://h/d?partitons=4":           "unknown option partitons in the URL (did you mean partitions?)",
		"sqlite:x.db?prefix=a-b":               `Prefix "a-b": want a letter`,
		"mysql://h/d?prefix=a-b":               `Prefix "a-b": want a letter`,
		"postgres://h/d?prefix=a-b":            `Prefix is "a-b": it may have`,
		"postgres://h/d?schema=A":              `Schema is "A": it may have`,
	} {
		_, err := locate(config.Store{URL: url})
		if err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: error %v, want %q", url, err, words)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("the error gives the password away: %v", err)
		}
	}
}
