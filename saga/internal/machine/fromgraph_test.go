package machine

import (
	"encoding/json"
	"testing"
)

// TestFromGraph: what is read from a graph has the same graph and hash, and stops where the data would decide.
func TestFromGraph(t *testing.T) {
	t.Parallel()
	perhaps := requested("mail")
	perhaps.OnlyIf = func(any) bool { return true }
	d := saga(t, undoable(localStep("book")), requested("reserve"),
		&Step{Kind: Choose, Name: "pay", Cases: []Case{
			{Name: "card", If: func(any) bool { return true }, Steps: []*Step{pivotal(requested("charge"))}}, {Name: "none"},
		}}, perhaps)
	text, err := json.Marshal(d.Graph())
	if err != nil {
		t.Fatal(err)
	}
	read, err := FromGraph(text)
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := json.Marshal(read.Graph()); string(again) != string(text) || read.Hash() != d.Hash() {
		t.Errorf("the graph is\n%s\nand was\n%s", again, text)
	}
	in := after(t, read, `{}`, says(VerbDone, "book"), answer("reserve", OutcomeDone))
	if st := in.State.Steps["pay"]; st == nil || !st.NeedsData() {
		t.Errorf("pay is %+v, want it to need the data", st)
	}
	if _, err := FromGraph([]byte(`{"saga": "x", "version": 1, "steps": [{"name": "a", "kind": "unknown"}]}`)); err == nil {
		t.Error("a graph with an unknown kind is accepted")
	}
}
