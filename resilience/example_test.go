package resilience_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/resilience"
)

func Example() {
	set, err := resilience.New(resilience.Config{
		Default: resilience.Policy{Retry: resilience.Retry{Attempts: 1}},
		Logger:  slog.New(slog.DiscardHandler),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	charge := set.Operation("payment.charge")
	for range 6 {
		err = charge.Run(context.Background(), func(context.Context) error { return errors.New("connection refused") })
	}
	fmt.Println(err)
	fmt.Println(postrider.OutcomeOf(err).Kind)
	// Output:
	// payment.charge: breaker is open: connection refused
	// unavailable
}

func ExampleParse() {
	c, err := resilience.Parse([]byte(`{"operations": {"payment.*": {"timeout": "2s", "breaker": {"min_call": 3}}}}`))
	fmt.Println(c.Operations["payment.*"].Timeout, err)
	// Output:
	// 0s resilience: operations.payment.*.breaker.min_call: unknown key
}

func ExampleTransport() {
	set, err := resilience.New(resilience.Config{Default: resilience.Policy{Timeout: 3 * time.Second}})
	if err != nil {
		fmt.Println(err)
		return
	}
	client := &http.Client{Transport: &resilience.Transport{
		Operation: func(*http.Request) *resilience.Operation { return set.Operation("payment.http") },
		KeyHeader: "Idempotency-Key",
	}}
	provider := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer provider.Close()
	answer, err := client.Get(provider.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer answer.Body.Close()
	fmt.Println(answer.Status)
	// Output: 200 OK
}
