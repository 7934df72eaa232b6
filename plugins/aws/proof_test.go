package main

import (
	"testing"

	"github.com/rowrelay/rowrelay/internal/plugintest"
)

// proof returns a scene that cuts connections instead of killing the emulator, because the emulator has its data in
// memory. FIFO queues and topics store a repeated message once.
func proof(l *link, config map[string]string) plugintest.Scene {
	return plugintest.Scene{
		Name: "aws", Config: config, Env: map[string]string{"AWS_REGION": "eu-west-1", "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": secretKey},
		KillServer: func() {
			l.stop()
			l.start()
		},
	}
}

func TestProof(t *testing.T) {
	q := newQueue(t, server(t, "ROWRELAY_TEST_ELASTICMQ"), ".fifo")
	scene := proof(q.link, map[string]string{"queue": q.url()})
	scene.Received = q.received
	plugintest.Prove(t, scene)
}

func TestProofTopics(t *testing.T) {
	f := newTopic(t)
	scene := proof(f.link, map[string]string{"topic": topicARN, "endpoint": "http://" + f.address})
	scene.Received = f.received
	plugintest.Prove(t, scene)
}
