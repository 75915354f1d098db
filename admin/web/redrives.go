package web

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/store"
)

// reviewData is a review, and what was filled in.
type reviewData struct {
	Review                       admin.Review
	IsRedrive                    bool
	Targets, Rate, Takes, Reason string
	// First and StopAt are those of the form.
	First  bool
	StopAt string
	// Rest counts what follows the first message.
	Rest int64
	// Confirm: the number of dead letters is typed in.
	Confirm bool
	Error   string
}

// defaultStop is the percentage of failed attempts at which the form of a redrive suggests to stop.
const defaultStop = "5"

// defaultRate is the rate that the form of a redrive suggests, per second.
const defaultRate = 50.0

// confirmFrom is how many dead letters a discard concerns at least for which their number is typed in.
const confirmFrom = 100

func needsConfirmation(v admin.Review) bool {
	return v.Action == admin.ReviewDiscard && v.Included >= confirmFrom
}

// confirmed returns an error unless the number was typed in that a discard of many needs.
func (h *Handler) confirmed(r *http.Request, p admin.Principal, id string) error {
	if !p.Role.May("ExecuteReview") { // which refuses it, on record
		return nil
	}
	v, err := h.service.ShowReview(r.Context(), p, id)
	if err != nil || !needsConfirmation(v) {
		return err
	}
	if typed := strings.ReplaceAll(strings.TrimSpace(r.PostFormValue("confirm")), ",", ""); typed != strconv.FormatInt(v.Included, 10) {
		return fmt.Errorf("%w: type %d to confirm how many dead letters are discarded", admin.ErrInput, v.Included)
	}
	return nil
}

func newReviewData(v admin.Review, x admin.Execution, err error) reviewData {
	d := reviewData{Review: v, IsRedrive: v.Action == admin.ReviewRedrive, Reason: x.Reason, Rest: v.Included - 1, Confirm: needsConfirmation(v)}
	var names []string
	for _, c := range v.Causes {
		names = append(names, c.Relay)
	}
	if d.Targets = strings.Join(tidy(names), ", "); d.Targets == "" {
		d.Targets = "where they failed"
	}
	rate := x.Rate
	if rate <= 0 {
		rate = defaultRate
	}
	d.Rate = strconv.FormatFloat(rate, 'f', -1, 64)
	if d.First, d.StopAt = true, defaultStop; err != nil {
		d.First, d.StopAt = x.First, strconv.FormatFloat(x.StopAt*100, 'f', -1, 64)
	}
	d.Takes = admin.Duration(max(time.Second, time.Duration(float64(v.Included)/rate*float64(time.Second)).Truncate(time.Second)))
	if err != nil {
		d.Error = err.Error()
	}
	return d
}

func (h *Handler) review(w http.ResponseWriter, r *http.Request, p admin.Principal) {
	h.show(w, r, p, "/dead", "Review", "review", func(out *page) error {
		v, err := h.service.ShowReview(r.Context(), p, r.PathValue("id"))
		if err != nil {
			return err
		}
		if v.Done {
			err = admin.ErrReviewChanged
		}
		out.Crumbs, out.Data = []crumb{{"Dead letters", "/dead"}, {"Review " + string(v.Action), ""}}, newReviewData(v, admin.Execution{}, err)
		return nil
	})
}

// redriveData is a redrive and what becomes of its messages.
type redriveData struct {
	Redrive  store.Redrive
	Outcome  store.RedriveOutcome
	NotSent  int64
	Left     string
	Reason   string
	NoDriver bool
	// Stopped says why it has stopped, "" if it has not; Waits that it waits for its first message.
	Stopped string
	Waits   bool
}

func (h *Handler) redrive(w http.ResponseWriter, r *http.Request, p admin.Principal) {
	h.show(w, r, p, "/activity", "Redrive "+r.PathValue("id"), "redrive", func(out *page) error {
		id, err := number(r, "id")
		if err != nil {
			return err
		}
		var d redriveData
		if d.Redrive, err = h.service.Redrive(r.Context(), p, id); err != nil {
			return err
		}
		if d.Redrive.Outcome != nil {
			d.Outcome = *d.Redrive.Outcome
		}
		d.Stopped = upper(deadletter.WhyStopped(d.Redrive))
		d.NotSent = max(0, d.Redrive.Selected-d.Redrive.Done-d.Redrive.Refused-d.Redrive.Skipped)
		if d.Redrive.State == store.RedriveRunning && d.Stopped == "" && d.Redrive.Rate > 0 {
			d.Left = admin.Duration(time.Duration(float64(d.NotSent) / d.Redrive.Rate * float64(time.Second)))
		}
		g := d.Redrive.Guard
		d.Waits = d.Stopped == "" && d.Redrive.State == store.RedriveRunning && g != nil && g.First && !g.Passed
		d.NoDriver = true
		if o, ok := out.Data.(admin.Overview); ok {
			for _, relay := range o.Relays {
				d.NoDriver = d.NoDriver && relay.Processes == 0
			}
		}
		if out.Refresh = refreshEvery; d.Redrive.State == store.RedriveRunning || d.Outcome.Waiting > 0 {
			out.Refresh = 1
		}
		out.Crumbs, out.Data = []crumb{{"Activity", "/activity"}, {fmt.Sprintf("Redrive %d", id), ""}}, d
		return nil
	})
}

// activityData is the audit and the redrives.
type activityData struct {
	List []admin.Entry
	// Running are the redrives that run, Stopped counts those of them that have stopped.
	Running  []store.Redrive
	Stopped  int
	Redrives []store.Redrive
	Next     string
}

// entriesShown is how many actions a page shows.
const entriesShown = 100

func (h *Handler) activity(w http.ResponseWriter, r *http.Request, p admin.Principal) {
	h.show(w, r, p, "/activity", "Activity", "activity", func(out *page) (err error) {
		var d activityData
		if d.Redrives, err = h.service.Redrives(r.Context(), p, 20); err != nil {
			return err
		}
		for _, redrive := range d.Redrives {
			if redrive.State == store.RedriveRunning {
				d.Running = append(d.Running, redrive)
				if redrive.Stopped() != "" {
					d.Stopped++
				}
			}
		}
		if p.Role.May("Activity") {
			var next string
			if d.List, next, err = h.service.Activity(r.Context(), p, r.URL.Query().Get("before"), entriesShown); err != nil {
				return err
			}
			if next != "" {
				d.Next = query("/activity", "before", next)
			}
		}
		out.Refresh, out.Data = refreshEvery, d
		return nil
	})
}
