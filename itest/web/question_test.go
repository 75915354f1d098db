package web_test

import (
	"context"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/saga"
)

// asks is the administration of an engine with an instance, 4711, that asks people with a role.
func asks(t *testing.T, role string) site {
	t.Helper()
	return fulfilment(t, saga.Running, saga.Ask[parcel]{
		Name: "release", Roles: []string{role, "management board"}, Timeout: 48 * time.Hour, Options: []string{"release", "reject", "ask the customer"},
		Question: func(parcel) string {
			return "Order 4711 is above 5,000 EUR, and the customer is new. Release it, although the address of the invoice is another one than that of the parcel?"
		},
	})
}

// TestOneClickAnswers: the Enter key in the reason chooses none of the options; a click on one answers with it.
func TestOneClickAnswers(t *testing.T) {
	t.Parallel()
	s := asks(t, "finance")
	ctx, cancel := context.WithTimeout(browser(t), 2*time.Minute)
	defer cancel()
	anna := admin.Principal{Issuer: "test", Subject: "anna", Role: admin.Admin}
	must(t, steps(ctx, chromedp.EmulateViewport(1024, 800), chromedp.Navigate(s.url+"/sagas/4711"), chromedp.WaitVisible(`#because0`), chromedp.SendKeys(`#because0`, "checked\r")))
	if list, _, err := s.service.SagaQuestions(t.Context(), anna, "", "", 10); err != nil || len(list) != 1 {
		t.Errorf("after Enter, the questions are %+v, %v", list, err)
	}
	must(t, steps(ctx, chromedp.Click(`button[value="reject"]`), chromedp.WaitVisible(`//*[contains(., "release answered: reject")]`)))
	in, err := s.service.Saga(t.Context(), anna, "4711")
	if must(t, err); in.Status != saga.Completed || len(in.History) != 2 || in.History[1].Actor != "anna" || in.History[1].Note != "checked" {
		t.Errorf("after a click, the instance is %+v", in)
	}
}
