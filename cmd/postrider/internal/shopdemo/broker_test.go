//go:build !race

package shopdemo

import (
	"bytes"
	"crypto/rand"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/servertest"
)

// TestShopOnEveryBroker ships an order of each kind and cancels one, on each of the test servers, with PostgreSQL for one of them.
func TestShopOnEveryBroker(t *testing.T) {
	t.Parallel()
	for _, broker := range []string{"NATS", "KAFKA", "RABBITMQ", "REDIS"} {
		t.Run(broker, func(t *testing.T) {
			t.Parallel()
			for _, number := range []int{1, 2} {
				var out bytes.Buffer
				cfg := testConfig(t, &out)
				cfg.Publisher, cfg.Name = servertest.Get(t, servertest.Name("POSTRIDER_TEST_"+broker)), "shop_"+strings.ToLower(rand.Text()[:8])
				if broker == "NATS" {
					cfg.Store = servertest.Get(t, "POSTRIDER_TEST_POSTGRES")
				}
				err := RunScenario(t.Context(), cfg, number)
				t.Log(out.String())
				if err != nil {
					t.Fatal(err)
				}
				if !strings.Contains(out.String(), "ledger exact") {
					t.Error("it does not say that the ledger is exact")
				}
			}
		})
	}
}

func TestShopRefusesABrokerThatItCannotRead(t *testing.T) {
	t.Parallel()
	for address, words := range map[string]string{
		"https://partner.example/hook": "write the URL of NATS, Kafka, RabbitMQ or Redis",
		"pigeon://loft":                `"pigeon" is no kind of broker`,
	} {
		if err := CheckPublisher(address); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: error %v, want %q", address, err, words)
		}
	}
}
