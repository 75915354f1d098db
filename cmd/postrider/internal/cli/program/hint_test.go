package program

import "testing"

func TestHint(t *testing.T) {
	t.Parallel()
	for want, p := range map[string]Program{
		"postrider status":                                  {},
		"postrider status --store sqlite:a.db":              {StoreFlag: "sqlite:a.db"},
		"postrider status --store 'sqlite:my shop.db'":      {StoreFlag: "sqlite:my shop.db"},
		"postrider status --store 'postgres://u@h/d?a=b&c'": {StoreFlag: "postgres://u@h/d?a=b&c"},
		"postrider status --config c.yaml --store shop":     {StoreFlag: "shop", configFile: "c.yaml"},
	} {
		if got := p.Hint("status"); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	for _, secret := range []string{"postgres://u:pw@h/d", "postgres://u@h/d?password=pw", "postgres://u@h/d?sslpassword=pw", "mysql://u:pw@h/d%zz"} {
		p := Program{StoreFlag: secret}
		if got := p.Hint("dead show %d", 7); got != "postrider dead show 7" {
			t.Errorf("%s: %s", secret, got)
		}
	}
	p := Program{configFile: "c.yaml", Environ: []string{"POSTRIDER_CONFIG=c.yaml"}}
	if got := p.Hint("status"); got != "postrider status" {
		t.Errorf("configuration of the environment: %s", got)
	}
}

// TestCommandsInErrors: a command line in the text of an error repeats what was given.
func TestCommandsInErrors(t *testing.T) {
	t.Parallel()
	p := Program{StoreFlag: "postgres://u@h/d"}
	for text, want := range map[string]string{
		"it is missing: run `postrider migrate up`": "it is missing: run `postrider migrate up --store postgres://u@h/d`",
		"`postrider status --store x` or `status`":  "`postrider status --store x` or `status`",
	} {
		if got := p.completeAll(text); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
