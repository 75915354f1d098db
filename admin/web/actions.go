package web

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/store"
)

// actionRoutes change something. Each leads to the page that shows the result.
func (h *Handler) actionRoutes() map[string]handler {
	return map[string]handler{
		"POST /reviews": h.startReview, "POST /reviews/{id}": h.executeReview, "POST /dead/{number}/redrive": h.redriveOne,
		"POST /dead/{number}/discard": h.discardOne, "POST /dead/{number}/edit": h.edit, "POST /dead/{number}/reveal": h.reveal,
		"POST /redrives/{id}/cancel": h.cancelRedrive, "POST /redrives/{id}/continue": h.continueRedrive,
		"POST /held/{relay}/{key}/decide": h.decideKey, "POST /messages/{id}/decide": h.decideMessage,
		"POST /sagas/{id}/operate": h.operateSaga, "POST /sagas/{id}/answer": h.answerSaga,
		"POST /relays/{name}/pause": h.pauseRelay, "POST /relays/{name}/resume": h.resumeRelay,
	}
}

// see leads to a page after an action.
func (h *Handler) see(w http.ResponseWriter, r *http.Request, path string, err error) {
	if err != nil {
		h.failWith(w, r, err)
		return
	}
	http.Redirect(w, r, h.cfg.Prefix+path, http.StatusSeeOther)
}

func (h *Handler) startReview(w http.ResponseWriter, r *http.Request, p admin.Principal) {
	if err := r.ParseForm(); err != nil {
		h.failWith(w, r, admin.ErrInput)
		return
	}
	f := deadFilter(r.PostForm)
	f.State = ""
	v, err := h.service.StartReview(r.Context(), p, admin.ReviewAction(r.PostForm.Get("action")), f)
	h.see(w, r, "/reviews/"+v.ID, err)
}

func (h *Handler) executeReview(w http.ResponseWriter, r *http.Request, p admin.Principal) {
	id := r.PathValue("id")
	x := admin.Execution{Digest: r.PostFormValue("digest"), Reason: strings.TrimSpace(r.PostFormValue("reason"))}
	err := h.confirmed(r, p, id)
	if text := strings.TrimSpace(r.PostFormValue("rate")); text != "" && err == nil {
		if x.Rate, err = strconv.ParseFloat(text, 64); err != nil || x.Rate <= 0 || x.Rate > 1e6 {
			err = fmt.Errorf("%w: the rate %q is not a number of messages per second above 0", admin.ErrInput, text)
		}
	}
	x.First = r.PostFormValue("start") == "first"
	if text := strings.TrimSpace(r.PostFormValue("stop")); text != "" && err == nil {
		if x.StopAt, err = strconv.ParseFloat(text, 64); err != nil || x.StopAt < 0 || x.StopAt >= 100 {
			err = fmt.Errorf("%w: %q is not a percentage from 0 to 100", admin.ErrInput, text)
		}
		x.StopAt /= 100
	}
	var v admin.Review
	if err == nil {
		v, _, err = h.service.ExecuteReview(r.Context(), p, id, x)
	}
	switch {
	case err == nil && v.Redrive > 0:
		h.see(w, r, fmt.Sprintf("/redrives/%d", v.Redrive), nil)
	case err == nil:
		h.see(w, r, "/dead?done=discarded", nil)
	case errors.Is(err, admin.ErrReason), errors.Is(err, admin.ErrInput), errors.Is(err, admin.ErrReviewChanged):
		h.reviewAgain(w, r, p, id, x, err)
	default:
		h.failWith(w, r, err)
	}
}

// reviewAgain shows a review that was not carried out, with what was filled in. One that was carried out leads to its result.
func (h *Handler) reviewAgain(w http.ResponseWriter, r *http.Request, p admin.Principal, id string, x admin.Execution, why error) {
	v, err := h.service.ShowReview(r.Context(), p, id)
	if err != nil {
		h.failWith(w, r, err)
		return
	}
	if v.Done && v.Redrive > 0 {
		h.see(w, r, fmt.Sprintf("/redrives/%d", v.Redrive), nil)
		return
	}
	out, err := h.newPage(r, p, "/dead", "Review")
	if err != nil {
		h.failWith(w, r, err)
		return
	}
	out.Crumbs, out.Data = []crumb{{"Dead letters", "/dead"}, {"Review " + string(v.Action), ""}}, newReviewData(v, x, why)
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(statusOf(why))
	h.execute(w, "review", out)
}

func (h *Handler) redriveOne(w http.ResponseWriter, r *http.Request, p admin.Principal) {
	n, err := number(r, "number")
	if err != nil {
		h.failWith(w, r, err)
		return
	}
	redrive, err := h.service.RedriveDead(r.Context(), p, n, strings.TrimSpace(r.PostFormValue("reason")))
	h.see(w, r, fmt.Sprintf("/redrives/%d", redrive.ID), err)
}

func (h *Handler) discardOne(w http.ResponseWriter, r *http.Request, p admin.Principal) {
	n, err := number(r, "number")
	if err == nil {
		err = h.service.DiscardDead(r.Context(), p, n, strings.TrimSpace(r.PostFormValue("reason")))
	}
	h.see(w, r, fmt.Sprintf("/dead/%d?done=discarded", n), err)
}

func (h *Handler) edit(w http.ResponseWriter, r *http.Request, p admin.Principal) {
	n, err := number(r, "number")
	if err != nil {
		h.failWith(w, r, err)
		return
	}
	d := editData{Number: n, Text: strings.ReplaceAll(r.PostFormValue("payload"), "\r\n", "\n"), Reason: strings.TrimSpace(r.PostFormValue("reason"))}
	d.Seen, _ = strconv.Atoi(r.PostFormValue("seen"))
	err = h.service.EditDead(r.Context(), p, n, d.Text, d.Seen, d.Reason)
	if err == nil || errors.Is(err, admin.ErrForbidden) {
		h.see(w, r, fmt.Sprintf("/dead/%d?done=edited", n), err)
		return
	}
	status, why := h.explain(r, err)
	d.Error = why
	out, pageErr := h.newPage(r, p, "/dead", "Edit dead letter")
	if pageErr != nil {
		h.failWith(w, r, pageErr)
		return
	}
	out.Crumbs, out.Data = deadCrumbs(n, "Edit"), d
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	h.execute(w, "edit", out)
}

// reveal answers a POST with the values: they are at no address that could be opened again.
func (h *Handler) reveal(w http.ResponseWriter, r *http.Request, p admin.Principal) {
	h.show(w, r, p, "/dead", "Hidden values", "reveal", func(out *page) error {
		n, err := number(r, "number")
		if err != nil {
			return err
		}
		m, err := h.service.Reveal(r.Context(), p, n, strings.TrimSpace(r.PostFormValue("reason")))
		if err != nil {
			return err
		}
		d := editData{Number: n, Shown: true, Payload: string(m.Payload), Key: m.Key, Subject: m.Subject}
		for name, value := range m.Headers {
			d.Headers = append(d.Headers, admin.Header{Name: name, Value: value})
		}
		out.Crumbs, out.Data = deadCrumbs(n, "Hidden values"), d
		return nil
	})
}

func (h *Handler) cancelRedrive(w http.ResponseWriter, r *http.Request, p admin.Principal) {
	id, err := number(r, "id")
	if err == nil {
		err = h.service.CancelRedrive(r.Context(), p, id, strings.TrimSpace(r.PostFormValue("reason")))
	}
	h.see(w, r, fmt.Sprintf("/redrives/%d?done=cancelled", id), err)
}

func (h *Handler) pauseRelay(w http.ResponseWriter, r *http.Request, p admin.Principal) {
	name := r.PathValue("name")
	last, err := time.ParseDuration(r.PostFormValue("for"))
	if err != nil {
		err = fmt.Errorf("%w: %q is not a duration", admin.ErrInput, r.PostFormValue("for"))
	} else {
		_, err = h.service.PauseRelay(r.Context(), p, name, strings.TrimSpace(r.PostFormValue("reason")), last)
	}
	h.see(w, r, admin.RelayPath(name)+"?done=paused", err)
}

func (h *Handler) resumeRelay(w http.ResponseWriter, r *http.Request, p admin.Principal) {
	name := r.PathValue("name")
	_, err := h.service.ResumeRelay(r.Context(), p, name, strings.TrimSpace(r.PostFormValue("reason")))
	h.see(w, r, admin.RelayPath(name)+"?done=resumed", err)
}

func (h *Handler) continueRedrive(w http.ResponseWriter, r *http.Request, p admin.Principal) {
	id, err := number(r, "id")
	if err == nil {
		err = h.service.ContinueRedrive(r.Context(), p, id, strings.TrimSpace(r.PostFormValue("reason")))
	}
	h.see(w, r, fmt.Sprintf("/redrives/%d", id), err)
}

func (h *Handler) decideKey(w http.ResponseWriter, r *http.Request, p admin.Principal) {
	h.decide(w, r, p, store.Decision{Relay: r.PathValue("relay"), Key: r.PathValue("key"), MessageID: r.PostFormValue("message")})
}

func (h *Handler) decideMessage(w http.ResponseWriter, r *http.Request, p admin.Principal) {
	h.decide(w, r, p, store.Decision{Relay: r.PostFormValue("relay"), MessageID: r.PathValue("id")})
}

func (h *Handler) decide(w http.ResponseWriter, r *http.Request, p admin.Principal, d store.Decision) {
	d.Verb, d.Reason = store.Verb(r.PostFormValue("verb")), strings.TrimSpace(r.PostFormValue("reason"))
	switch d.Verb {
	case store.VerbRetry, store.VerbSkip, store.VerbDead, store.VerbDeadAll:
	default:
		h.failWith(w, r, fmt.Errorf("%w: there is no decision %q", admin.ErrInput, d.Verb))
		return
	}
	done := "applied"
	_, err := h.service.Decide(r.Context(), p, d)
	if errors.Is(err, held.ErrNotApplied) {
		done, err = "recorded", nil
	}
	path := "/held?done=" + done
	if d.Key == "" {
		path = "/messages/" + escapePath(d.MessageID) + "?done=" + done
	} else if _, _, gone := h.service.HeldKey(r.Context(), p, d.Relay, d.Key, 0); gone == nil {
		path = admin.HeldPath(d.Relay, d.Key) + "?done=" + done
	}
	h.see(w, r, path, err)
}
