package process

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/servertest"
)

// kafkaCluster is the ID of every test cluster: 16 bytes in base64, as Kafka requires.
const kafkaCluster = "cG9zdHJpZGVyLXRlc3RzIQ"

// kafkaSettings suit tests on a small machine: one node that is its own controller, and internal topics with one replica.
var kafkaSettings = []string{
	"process.roles=broker,controller",
	"node.id=1",
	"controller.listener.names=CONTROLLER",
	"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
	"auto.create.topics.enable=false",
	"offsets.topic.num.partitions=1",
	"offsets.topic.replication.factor=1",
	"transaction.state.log.num.partitions=1",
	"transaction.state.log.replication.factor=1",
	"transaction.state.log.min.isr=1",
	"group.initial.rebalance.delay.ms=0", // do not wait for members that may join
	"group.min.session.timeout.ms=100",   // tests kill members
	"log.cleaner.dedupe.buffer.size=4194304",
	"log.cleaner.backoff.ms=100", // tests wait for compaction
	"log.index.size.max.bytes=1048576",
}

// kafkaLogging logs warnings, and the line that signals that the server is ready.
const kafkaLogging = `<Configuration>
  <Appenders><Console name="out"><PatternLayout pattern="%d{ISO8601} %p %c{1} %m%n"/></Console></Appenders>
  <Loggers>
    <Root level="WARN"><AppenderRef ref="out"/></Root>
    <Logger name="kafka.server.KafkaRaftServer" level="INFO"/>
  </Loggers>
</Configuration>
`

// StartKafka starts a single-node Kafka in KRaft mode on the loopback interface, with its data under dir. With port 0 it uses a
// free port; to restart a server, pass the same dir and its old port. Its jars are in home's folder libs; java is found in PATH.
func StartKafka(ctx context.Context, home, dir string, port int) (*Server, error) {
	java, err := exec.LookPath("java")
	if err != nil {
		return nil, fmt.Errorf("start Kafka: %w: install Java 17 or later (on Debian: apt-get install default-jre-headless)", err)
	}
	dir = filepath.Join(dir, "kafka")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	settings, logging := filepath.Join(dir, "server.properties"), filepath.Join(dir, "log4j2.xml")
	if err := os.WriteFile(logging, []byte(kafkaLogging), 0o600); err != nil {
		return nil, err
	}
	// A start with verified bytecode takes a quarter more processor time.
	run := []string{"-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote",
		"-Dlog4j2.configurationFile=" + logging, "-cp", filepath.Join(home, "libs", "*")}
	start := func(port int) (*Server, error) {
		if err := writeKafkaSettings(settings, dir, port); err != nil {
			return nil, err
		}
		if err := formatKafka(filepath.Join(dir, "data")); err != nil {
			return nil, err
		}
		p, err := Start(ctx, Command{
			Name: "Kafka", Path: java, Args: slices.Concat(run, []string{"kafka.Kafka", settings}),
			Log: filepath.Join(dir, "kafka.log"), Ready: "Kafka Server started",
		})
		if err != nil {
			return nil, err
		}
		return &Server{p, fmt.Sprintf("kafka://127.0.0.1:%d", port)}, nil
	}
	if port != 0 {
		return start(port)
	}
	return onFreePort(start)
}

// formatKafka prepares the storage unless that was done before. Kafka's own tool would take as long to start as the server.
func formatKafka(data string) error {
	properties := filepath.Join(data, "meta.properties")
	if _, err := os.Stat(properties); err == nil {
		return nil
	}
	if err := os.MkdirAll(data, 0o700); err != nil {
		return err
	}
	return os.WriteFile(properties, []byte("version=1\nnode.id=1\ncluster.id="+kafkaCluster+"\n"), 0o600)
}

// writeKafkaSettings writes the settings of a server that clients reach at port, with its controller on another free
// port.
func writeKafkaSettings(path, dir string, port int) error {
	free, err := servertest.FreePort()
	if err != nil {
		return err
	}
	controller := fmt.Sprintf("127.0.0.1:%d", free)
	settings := append([]string{
		"log.dirs=" + filepath.Join(dir, "data"),
		fmt.Sprintf("listeners=PLAINTEXT://127.0.0.1:%d,CONTROLLER://%s", port, controller),
		"controller.quorum.voters=1@" + controller,
	}, kafkaSettings...)
	return os.WriteFile(path, []byte(strings.Join(settings, "\n")+"\n"), 0o600)
}
