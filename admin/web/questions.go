package web

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/postrider/postrider/admin"
)

// Answers reports whether the principal may answer a question of the saga.
func (d sagaData) Answers() bool {
	return slices.ContainsFunc(d.Saga.Questions, func(q admin.SagaQuestion) bool { return q.MayAnswer })
}

// answerers says who may answer a question.
func answerers(roles []string) string {
	if len(roles) == 0 {
		return "operators"
	}
	return strings.Join(roles, " or ")
}

func (h *Handler) answerSaga(w http.ResponseWriter, r *http.Request, p admin.Principal) {
	id := r.PathValue("id")
	rev, _ := strconv.ParseInt(r.PostFormValue("rev"), 10, 64) // the service refuses 0, and puts on record who may not answer
	out, err := h.service.AnswerSaga(r.Context(), p, id, admin.SagaAnswer{
		Step: r.PostFormValue("step"), Option: r.PostFormValue("option"), Rev: rev, Reason: r.PostFormValue("reason"),
	})
	done := "asked"
	if out.Handled {
		done = "answered"
	}
	h.see(w, r, "/sagas/"+escapePath(id)+"?done="+done, err)
}
