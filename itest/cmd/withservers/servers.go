package main

import (
	"errors"
	"fmt"

	"github.com/postrider/postrider/internal/servertest"
	"github.com/postrider/postrider/itest/process"
)

// provide starts a server or finds a program.
func (s *supply) provide(name servertest.Name) (value string, err error) {
	switch name {
	case servertest.Postgres, servertest.MySQL, servertest.NATS, servertest.Redis, servertest.RabbitMQ, servertest.Kafka:
		report := s.report(name)
		defer func() { report(value, err) }()
		return s.keep(s.start(name))
	case servertest.NATSBin, servertest.HelmBin, servertest.KubeconformBin:
		return s.buildProgram(name)
	case servertest.KafkaHome:
		return s.kafkaHome()
	case servertest.Languages:
		return s.filled("languages", "python3", "npm", "java", "mvn")
	case servertest.Clients:
		return s.filled("clients", "python3", "npm")
	case servertest.Grafana:
		return s.filled("grafana", "npm")
	case servertest.PythonBin:
		return s.program("python3")
	case servertest.NPMBin:
		return s.program("npm")
	case servertest.MariaDBBin:
		return s.program("mariadbd")
	case servertest.MariaDBSlapBin:
		return s.program("mariadb-slap")
	case servertest.RedisBin:
		return s.program("redis-server")
	case servertest.RabbitMQBin:
		return s.program("rabbitmq-server")
	case servertest.PgBenchBin:
		return s.program("pgbench")
	case servertest.PrometheusBin:
		return s.program("prometheus")
	case servertest.PromtoolBin:
		return s.program("promtool")
	case servertest.AlertmanagerBin:
		return s.program("prometheus-alertmanager")
	case servertest.PgBouncerBin:
		return s.program("pgbouncer")
	case servertest.ChromiumBin:
		return s.program("chromium")
	case servertest.Axe:
		return s.axe()
	}
	return "", fmt.Errorf("there is no %s", name)
}

// start starts a server with the programs that it needs.
func (s *supply) start(name servertest.Name) (*process.Server, error) {
	switch name {
	case servertest.Postgres:
		if _, err := s.program("initdb"); err != nil {
			return nil, err
		}
		return process.StartPostgres(s.ctx, s.dir)
	case servertest.MySQL:
		bin, err := s.get(s.ctx, servertest.MariaDBBin)
		if err != nil {
			return nil, err
		}
		return process.StartMariaDB(s.ctx, bin, s.dir)
	case servertest.NATS:
		bin, err := s.get(s.ctx, servertest.NATSBin)
		if err != nil {
			return nil, err
		}
		return process.StartNATS(s.ctx, bin, s.dir, 0)
	case servertest.Redis:
		bin, err := s.get(s.ctx, servertest.RedisBin)
		if err != nil {
			return nil, err
		}
		return process.StartRedis(s.ctx, bin, s.dir, 0)
	case servertest.RabbitMQ:
		bin, err := s.get(s.ctx, servertest.RabbitMQBin)
		if err != nil {
			return nil, err
		}
		return process.StartRabbitMQ(s.ctx, bin, s.dir)
	default:
		_, missing := s.program("java")
		home, err := s.get(s.ctx, servertest.KafkaHome)
		if err := errors.Join(missing, err); err != nil {
			return nil, err
		}
		return process.StartKafka(s.ctx, home, s.dir, 0)
	}
}
