package storetest

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/store"
)

func sagaReadTests[Tx any]() []sagaTest[Tx] {
	return []sagaTest[Tx]{
		{name: "ListFilters", run: sagaListFilters[Tx], statements: true},
		{name: "ListIsInOrderAndPaged", run: sagaListPages[Tx]},
		{name: "SummaryIsTheInstance", run: sagaSummary[Tx], statements: true},
		{name: "CountsLeaveOutTheEnded", run: sagaCounts[Tx], statements: true},
		{name: "NoInstance", run: sagaNone[Tx]},
	}
}

// listed returns the IDs of the instances that a filter selects.
func (e *sagaEnv[Tx]) listed(f store.SagaFilter) (ids []string) {
	e.t.Helper()
	list, err := e.sagas.ListSagas(e.ctx, f, "", 100)
	e.must(err, "list")
	for _, s := range list {
		ids = append(ids, s.ID)
	}
	return ids
}

func sagaListFilters[Tx any](e *sagaEnv[Tx]) {
	parent := e.start("a", keyed("order/1"), func(st *store.SagaStart) {
		st.Tenant, st.CorrelationID, st.Labels = "t1", "corr-1", map[string]string{"customer": "42", "region": "eu"}
		st.Deadline = time.Hour
	})
	e.created(parent,
		e.start("b", childOf(parent.Run), func(st *store.SagaStart) {
			st.Status, st.Direction, st.Cause, st.Waiting = store.SagaCompensating, store.SagaBack, "timed out", "pay/card/charge, mail 100%_x"
			st.Labels, st.Deadline = map[string]string{"customer": "42"}, time.Microsecond
		}),
		e.start("c", func(st *store.SagaStart) { st.Engine, st.Version, st.Paused = "billing", 2, true }),
		e.start("d", keyed("order/1"), func(st *store.SagaStart) {
			st.Saga, st.Status, st.Deadline = "refund", store.SagaStuck, time.Microsecond
		}),
	)
	e.elapse(20 * time.Millisecond)
	e.move(parent.Run)
	ended := e.created(e.start("e", func(st *store.SagaStart) { st.Deadline = time.Microsecond }))
	e.move(ended, to(store.SagaCompleted))
	for name, tt := range map[string]struct {
		filter store.SagaFilter
		want   string
	}{
		"all":                {store.SagaFilter{}, "a b c d e"},
		"engine":             {store.SagaFilter{Engine: "billing"}, "c"},
		"saga":               {store.SagaFilter{Saga: "order"}, "a b c e"},
		"version":            {store.SagaFilter{Version: 2}, "c"},
		"running":            {store.SagaFilter{Status: []store.SagaStatus{store.SagaRunning}}, "a c"},
		"stuck":              {store.SagaFilter{Status: []store.SagaStatus{store.SagaStuck}}, "d"},
		"ended":              {store.SagaFilter{Status: []store.SagaStatus{store.SagaCompleted, store.SagaAbandoned}}, "e"},
		"two statuses":       {store.SagaFilter{Status: []store.SagaStatus{store.SagaStuck, store.SagaCompensating}}, "b d"},
		"stuck and ended":    {store.SagaFilter{Status: []store.SagaStatus{store.SagaStuck, store.SagaCompleted}}, "d e"},
		"running of a saga":  {store.SagaFilter{Saga: "order", Status: []store.SagaStatus{store.SagaRunning}}, "a c"},
		"key":                {store.SagaFilter{Key: "order/1"}, "a d"},
		"parent":             {store.SagaFilter{ParentRun: parent.Run}, "b"},
		"correlation ID":     {store.SagaFilter{CorrelationID: "corr-1"}, "a"},
		"tenant":             {store.SagaFilter{Tenant: "t1"}, "a"},
		"cause":              {store.SagaFilter{Cause: "timed out"}, "b"},
		"waiting for":        {store.SagaFilter{WaitingFor: "card/charge"}, "b"},
		"wildcards":          {store.SagaFilter{WaitingFor: "100%_"}, "b"},
		"a wildcard":         {store.SagaFilter{WaitingFor: "p_y"}, ""},
		"waiting, case":      {store.SagaFilter{WaitingFor: "PAY"}, ""},
		"label":              {store.SagaFilter{Labels: map[string]string{"customer": "42"}}, "a b"},
		"labels":             {store.SagaFilter{Labels: map[string]string{"customer": "42", "region": "eu"}}, "a"},
		"label of no one":    {store.SagaFilter{Labels: map[string]string{"customer": "eu"}}, ""},
		"paused":             {store.SagaFilter{Paused: true}, "c"},
		"overdue":            {store.SagaFilter{Overdue: true}, "b d"},
		"young":              {store.SagaFilter{OlderThan: time.Hour}, ""},
		"old":                {store.SagaFilter{OlderThan: 10 * time.Millisecond, Saga: "refund"}, "d"},
		"several conditions": {store.SagaFilter{Saga: "order", Engine: "shop", Labels: map[string]string{"customer": "42"}, WaitingFor: "card"}, "b"},
	} {
		e.wantIDs(name, e.listed(tt.filter), strings.Fields(tt.want))
	}
}

func sagaListPages[Tx any](e *sagaEnv[Tx]) {
	var want []string
	for i := range 7 {
		st := e.start(fmt.Sprint("i", i))
		e.created(st)
		want = append(want, st.ID)
	}
	var got []string
	for after := ""; ; {
		page, err := e.sagas.ListSagas(e.ctx, store.SagaFilter{Saga: "order"}, after, 3)
		e.must(err, "list")
		if len(page) == 0 {
			break
		}
		for _, s := range page {
			got, after = append(got, s.ID), s.Run
		}
	}
	e.wantIDs("pages", got, want)
}

func sagaSummary[Tx any](e *sagaEnv[Tx]) {
	began := time.Now()
	run := e.created(e.start("a", keyed("k"), func(st *store.SagaStart) { st.Deadline, st.TimerAt = time.Hour, time.Minute }))
	e.created(e.start("b"))
	check := func() {
		e.t.Helper()
		list, err := e.sagas.SagasByID(e.ctx, []string{"none", "a", "a"})
		e.must(err, "summaries")
		if len(list) != 1 {
			e.t.Fatalf("%d summaries, want 1", len(list))
		}
		i, got := e.show("a"), list[0]
		want := store.SagaSummary{
			SagaIdentity: i.SagaIdentity, SagaCondition: i.SagaCondition, HoldsKey: i.HoldsKey, Rev: i.Rev, Age: got.Age,
			StartedAt: i.StartedAt, UpdatedAt: i.UpdatedAt, StuckAt: i.StuckAt, EndedAt: i.EndedAt,
		}
		if i.Deadline > 0 {
			want.DeadlineAt, want.TimerAt = i.StartedAt.Add(i.Deadline), i.StartedAt.Add(i.SagaTimes.TimerAt)
		}
		if !reflect.DeepEqual(got, want) {
			e.t.Errorf("summary:\n got %+v\nwant %+v", got, want)
		}
		e.wantNear("age", got.Age, 0, time.Since(began))
	}
	check()
	e.move(run, to(store.SagaStuck), func(c *store.SagaChange) { c.SagaTimes = store.SagaTimes{} })
	check()
	e.move(run, to(store.SagaCompleted))
	check()
	if list, err := e.sagas.SagasByID(e.ctx, nil); len(list) > 0 || err != nil {
		e.t.Errorf("summaries of none: %v, %v", list, err)
	}
}

func sagaCounts[Tx any](e *sagaEnv[Tx]) {
	counts := func() []store.SagaCount {
		e.t.Helper()
		out, err := e.sagas.CountSagas(e.ctx)
		e.must(err, "count")
		return out
	}
	if got := counts(); len(got) > 0 {
		e.t.Errorf("counts of none: %+v", got)
	}
	began := time.Now()
	first := e.created(e.start("a"))
	e.elapse(20 * time.Millisecond)
	e.created(e.start("b"), e.start("c", func(st *store.SagaStart) { st.Version = 2 }))
	back := e.created(e.start("d"))
	e.move(back, to(store.SagaStuck), func(c *store.SagaChange) { c.Direction = store.SagaBack })
	for i, status := range []store.SagaStatus{store.SagaCompleted, store.SagaCompensated, store.SagaAbandoned} {
		run := e.created(e.start(fmt.Sprint("ended-", i)))
		e.move(run, to(status))
	}
	got := counts()
	var oldest []time.Duration
	for i := range got {
		oldest = append(oldest, got[i].Oldest)
		e.wantNear("age of the oldest", got[i].Oldest, 0, time.Since(began))
		got[i].Oldest = 0
	}
	count := func(version int, status store.SagaStatus, direction store.SagaDirection, n int64) store.SagaCount {
		return store.SagaCount{Engine: "shop", Saga: "order", Version: version, Kind: store.SagaOrchestrated, Status: status, Direction: direction, Count: n}
	}
	want := []store.SagaCount{
		count(1, store.SagaRunning, store.SagaForward, 2), count(1, store.SagaStuck, store.SagaBack, 1), count(2, store.SagaRunning, store.SagaForward, 1),
	}
	if !slices.Equal(got, want) {
		e.t.Fatalf("counts:\n got %+v\nwant %+v", got, want)
	}
	if oldest[0] < oldest[2]+15*time.Millisecond {
		e.t.Errorf("the oldest are %s old; the first is 20 ms older than the third", oldest)
	}
	e.move(first, to(store.SagaCompensated))
	e.move(first, to(store.SagaCompensating)) // reopened
	if got = counts(); len(got) != 4 || got[0].Status != store.SagaCompensating {
		e.t.Errorf("counts with a reopened instance: %+v", got)
	}
}

func sagaNone[Tx any](e *sagaEnv[Tx]) {
	e.wantGone("none")
	if _, err := e.sagas.ShowSaga(e.ctx, ""); !errors.Is(err, store.ErrNoSaga) {
		e.t.Errorf("show no ID: %v, want ErrNoSaga", err)
	}
	if aliases, labels, err := e.sagas.SagaNames(e.ctx, "none"); len(aliases) > 0 || len(labels) > 0 || err != nil {
		e.t.Errorf("names of no run: %v, %v, %v", aliases, labels, err)
	}
	e.wantIDs("list", e.listed(store.SagaFilter{}), nil)
}
