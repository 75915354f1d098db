package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/internal/servertest"
)

// TestShop: an order that is placed arrives at NATS.
func TestShop(t *testing.T) {
	broker := clitest.StartNATS(t)
	port, err := servertest.FreePort()
	clitest.Must(t, err)
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	t.Setenv("DATABASE_URL", newDatabase(t))
	t.Setenv("NATS_URL", broker)
	t.Setenv("ADDR", address)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, stop) }()

	var order Order
	await(t, func() error {
		answer, err := http.PostForm("http://"+address+"/orders", url.Values{"item": {"tea"}})
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		return json.NewDecoder(answer.Body).Decode(&order)
	})
	conn, err := nats.Connect(broker)
	clitest.Must(t, err)
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	clitest.Must(t, err)
	await(t, func() error {
		stream, err := js.Stream(t.Context(), "SHOP")
		if err != nil {
			return err
		}
		m, err := stream.GetLastMsgForSubject(t.Context(), "SHOP.order.placed")
		if err != nil {
			return err
		}
		if got, want := string(m.Data), fmt.Sprintf(`{"number":%d,"item":"tea"}`, order.Number); got != want {
			t.Errorf("order %d was published as %s, want %s", order.Number, got, want)
		}
		return nil
	})
	stop()
	clitest.Must(t, <-ended)
}

// await calls f until it succeeds.
func await(t *testing.T, f func() error) {
	t.Helper()
	look, limit := time.NewTicker(20*time.Millisecond), time.After(3*time.Minute)
	defer look.Stop()
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-look.C:
		case <-limit:
			t.Fatal(err)
		}
	}
}

// newDatabase creates a database that lives as long as the test.
func newDatabase(t *testing.T) string {
	t.Helper()
	server, err := url.Parse(servertest.Get(t, servertest.Postgres))
	clitest.Must(t, err)
	name := "shop_" + strings.ToLower(rand.Text())
	execute := func(ctx context.Context, statement string) {
		conn, err := pgx.Connect(ctx, server.String())
		clitest.Must(t, err)
		_, err = conn.Exec(ctx, statement)
		clitest.Must(t, err)
		clitest.Must(t, conn.Close(ctx))
	}
	execute(t.Context(), "CREATE DATABASE "+name)
	t.Cleanup(func() { execute(context.Background(), "DROP DATABASE "+name+" WITH (FORCE)") })
	own := *server
	own.Path = "/" + name
	return own.String()
}
