// Package servertest gives tests the servers and programs that they need. Under withservers (itest/cmd/withservers), a
// server is installed and started when the first test requests it, and the test waits until it is ready.
package servertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// Name is an environment variable that names a server or program. If it is set, nothing is started.
type Name string

// The servers, by URL.
const (
	Postgres Name = "POSTRIDER_TEST_POSTGRES"
	MySQL    Name = "POSTRIDER_TEST_MYSQL"
	NATS     Name = "POSTRIDER_TEST_NATS"
	Redis    Name = "POSTRIDER_TEST_REDIS"
	RabbitMQ Name = "POSTRIDER_TEST_RABBITMQ"
	Kafka    Name = "POSTRIDER_TEST_KAFKA"
)

// The programs, by path.
const (
	NATSBin         Name = "POSTRIDER_TEST_NATS_BIN"
	MariaDBBin      Name = "POSTRIDER_TEST_MARIADB_BIN"
	MariaDBSlapBin  Name = "POSTRIDER_TEST_MARIADB_SLAP_BIN"
	RedisBin        Name = "POSTRIDER_TEST_REDIS_BIN"
	RabbitMQBin     Name = "POSTRIDER_TEST_RABBITMQ_BIN"
	PgBenchBin      Name = "POSTRIDER_TEST_PGBENCH_BIN"
	PgBouncerBin    Name = "POSTRIDER_TEST_PGBOUNCER_BIN"
	PrometheusBin   Name = "POSTRIDER_TEST_PROMETHEUS_BIN"
	PromtoolBin     Name = "POSTRIDER_TEST_PROMTOOL_BIN"
	AlertmanagerBin Name = "POSTRIDER_TEST_ALERTMANAGER_BIN"
	ChromiumBin     Name = "POSTRIDER_TEST_CHROMIUM_BIN"
	HelmBin         Name = "POSTRIDER_TEST_HELM_BIN"
	KubeconformBin  Name = "POSTRIDER_TEST_KUBECONFORM_BIN"
	// Axe is the script of axe-core, which checks pages for accessibility.
	Axe Name = "POSTRIDER_TEST_AXE"
	// KafkaHome is the folder of a Kafka installation with its jars in libs.
	KafkaHome Name = "POSTRIDER_TEST_KAFKA_HOME"
	// Languages is the folder with what the programs in other languages need.
	Languages Name = "POSTRIDER_TEST_LANGUAGES"
	// Clients is the folder with the packages of Python and npm that use the administration as other programs do.
	Clients Name = "POSTRIDER_TEST_CLIENTS"
	// Grafana is the folder with the compiler of TypeScript, and with Grafana's types of dashboards.
	Grafana Name = "POSTRIDER_TEST_GRAFANA"
	// PythonBin has the module venv.
	PythonBin Name = "POSTRIDER_TEST_PYTHON_BIN"
	NPMBin    Name = "POSTRIDER_TEST_NPM_BIN"
)

// ControlVariable holds the URL at which withservers resolves a Name.
const ControlVariable = "POSTRIDER_TEST_SERVERS"

// reportTime is reserved before the test's deadline to report what it waited for.
const reportTime = 10 * time.Second

// Get returns the URL of a server or the path of a program, and waits for it until the test's deadline. The test fails if
// there is none.
func Get(t testing.TB, name Name) string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background()) // cleanups call Get too
	if d, ok := t.(interface{ Deadline() (time.Time, bool) }); ok {
		if deadline, limited := d.Deadline(); limited {
			cancel()
			ctx, cancel = context.WithDeadline(context.Background(), deadline.Add(-reportTime))
		}
	}
	defer cancel()
	value, err := Lookup(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// Lookup is Get outside a test. It waits until ctx ends.
func Lookup(ctx context.Context, name Name) (string, error) {
	if value := os.Getenv(string(name)); value != "" {
		return value, nil
	}
	control := os.Getenv(ControlVariable)
	if control == "" {
		return "", fmt.Errorf("%s is not set: run the tests with make test or withservers, which start the servers", name)
	}
	value, err := ask(ctx, control+"/"+string(name))
	if err != nil {
		return "", fmt.Errorf("get %s from withservers: %w", name, err)
	}
	return value, nil
}

func ask(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	// A separate client: a kept-alive connection would count as a leaked goroutine.
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return "", err
	}
	text := strings.TrimSpace(string(body))
	if resp.StatusCode != http.StatusOK {
		return "", errors.New(text)
	}
	return text, nil
}
