package machine

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/postrider/postrider"
)

// TestChanges: every way in which a structure can differ has a text that names it, also when the old one was read from its graph.
func TestChanges(t *testing.T) {
	t.Parallel()
	chosen := func(steps ...*Step) *Step {
		return &Step{Kind: Choose, Name: "pay", Cases: []Case{{Name: "card", If: func(any) bool { return true }, Steps: steps}, {Name: "else"}}}
	}
	pivot := requested("charge")
	pivot.Pivot = true
	renamed := requested("charge")
	renamed.Message = "card.debit"
	announced := saga(t, requested("reserve"), requested("charge"))
	announced.OnCompleted = func(any) (*postrider.Message, error) { return nil, nil }
	base := []*Step{requested("reserve"), requested("charge")}
	for name, tt := range map[string]struct {
		was  []*Step
		is   *Definition
		want []string
	}{
		"added":           {base, saga(t, append(base[:2:2], requested("mail"))...), []string{"step mail was added after step charge"}},
		"added at first":  {base, saga(t, append([]*Step{requested("check")}, base...)...), []string{"step check was added at the beginning"}},
		"removed":         {base, saga(t, requested("reserve")), []string{"step charge was removed"}},
		"moved":           {base, saga(t, base[1], base[0]), []string{"the order was step reserve, step charge, and is step charge, step reserve"}},
		"pivot":           {base, saga(t, base[0], pivot), []string{"step charge: pivot was not set, and is true"}},
		"another message": {base, saga(t, base[0], renamed), []string{`step charge: message was "charge", and is "card.debit"`}},
		"announced":       {base, announced, []string{"the saga: on_completed was not set, and is true"}},
		"in a case": {
			[]*Step{chosen(requested("charge"))}, saga(t, chosen(requested("charge"), requested("mail"))),
			[]string{"step pay/card/mail was added after step pay/card/charge"},
		},
		"of another kind": {base, saga(t, base[0], &Step{Kind: Await, Name: "charge", Message: "charge", Timeout: NoTimeout}), []string{
			`step charge: kind was "request", and is "await"`,
		}},
	} {
		graph, err := json.Marshal(saga(t, tt.was...).Graph())
		if err != nil {
			t.Fatal(err)
		}
		was, err := RulesFromGraph(graph)
		if err != nil {
			t.Fatal(err)
		}
		if got := Changes(was, tt.is); !slices.Equal(got, tt.want) {
			t.Errorf("%s:\n got %q\nwant %q", name, got, tt.want)
		}
	}
}
