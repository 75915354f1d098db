package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const kafkaVersion = "4.1.1"

// kafkaPOM makes Maven fetch Kafka, which is released on Maven Central, and its logging backend.
const kafkaPOM = `<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>postrider</groupId>
  <artifactId>kafka</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka_2.13</artifactId>
      <version>` + kafkaVersion + `</version>
    </dependency>
    <dependency>
      <groupId>org.apache.logging.log4j</groupId>
      <artifactId>log4j-slf4j-impl</artifactId>
      <version>2.24.3</version>
    </dependency>
  </dependencies>
</project>
`

const copyJars = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"

// kafkaHome is the folder of Kafka's jars in .cache of the repository; missing jars are fetched.
func (s *supply) kafkaHome() (string, error) {
	const variable = "POSTRIDER_TEST_KAFKA_HOME"
	root, err := repository(s.ctx)
	if err != nil {
		return "", fmt.Errorf("%w, or set %s", err, variable)
	}
	home := filepath.Join(root, ".cache", "kafka-"+kafkaVersion)
	if _, err := os.Stat(filepath.Join(home, "libs")); err == nil {
		return home, nil
	} else if !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	maven, err := s.program("mvn")
	if err == nil {
		err = fetchKafka(s.ctx, maven, home)
	}
	if err != nil {
		return "", fmt.Errorf("fetch Kafka %s: %w; or set %s to the folder of a Kafka", kafkaVersion, err, variable)
	}
	return home, nil
}

// fetchKafka fills home/libs. The folder is renamed to this when it is complete, so that an interrupted fetch does not
// count.
func fetchKafka(ctx context.Context, maven, home string) error {
	if err := os.MkdirAll(home, 0o755); err != nil {
		return err
	}
	fetched, err := os.MkdirTemp(home, "fetching-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(fetched) }() // leftovers after an error do no harm
	pom := filepath.Join(fetched, "pom.xml")
	if err := os.WriteFile(pom, []byte(kafkaPOM), 0o600); err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "withservers: fetching Kafka", kafkaVersion)
	libs := filepath.Join(fetched, "libs")
	cmd := exec.CommandContext(ctx, maven, "--batch-mode", "--quiet", "--file", pom, copyJars,
		"-DincludeScope=runtime", "-DoutputDirectory="+libs)
	cmd.Env = append(os.Environ(), "MAVEN_OPTS=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC") // half the processor time of a Maven that ends soon
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("mvn: %w\n%s", err, out)
	}
	if err := os.Rename(libs, filepath.Join(home, "libs")); !errors.Is(err, os.ErrExist) { // another run may have been faster
		return err
	}
	return nil
}

// repository is the root of the repository in which this program runs.
func repository(ctx context.Context) (string, error) {
	work, err := exec.CommandContext(ctx, "go", "env", "GOWORK").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOWORK: %w", err)
	}
	file := strings.TrimSpace(string(work))
	if !filepath.IsAbs(file) {
		return "", errors.New("no go.work is in force here: run this in the repository")
	}
	return filepath.Dir(file), nil
}
