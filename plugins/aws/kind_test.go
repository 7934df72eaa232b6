package main

import (
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/sinktest"
)

func registry(t testing.TB) *sinks.Registry {
	t.Helper()
	r, err := sinks.NewRegistry(kind())
	check(t, err)
	return r
}

func TestKind(t *testing.T) {
	t.Parallel()
	sinktest.Kind(t, kind(),
		map[string]any{"queue": "https://sqs.eu-west-1.amazonaws.com/123456789012/orders.fifo"},
		map[string]any{"queue": "https://sqs.eu-west-1.amazonaws.com/123456789012/{header:queue}", "concurrency": 20},
		map[string]any{"topic": "arn:aws:sns:eu-west-1:123456789012:{topic}.fifo", "region": "eu-west-1", "endpoint": "http://localhost:4100"},
	)
}

func TestInvalidSettings(t *testing.T) {
	t.Parallel()
	const url, arn = "https://sqs.eu-west-1.amazonaws.com/1/orders", "arn:aws:sns:eu-west-1:1:orders"
	for _, test := range []struct {
		settings map[string]any
		want     string
	}{
		{map[string]any{}, "either queue or topic is required"},
		{map[string]any{"queue": url, "topic": arn}, "either queue or topic is required"},
		{map[string]any{"queue": "orders"}, "setting queue: must be a queue's URL"},
		{map[string]any{"queue": "https://sqs.eu-west-1.amazonaws.com/orders"}, "setting queue: must be a queue's URL"},
		{map[string]any{"queue": "https://user:password@host/1/orders"}, "setting queue: must be a queue's URL"},
		{map[string]any{"queue": "https://{topic}.com/1/orders"}, "setting queue: must be a queue's URL"},
		{map[string]any{"queue": "https://host{topic}/1/orders"}, "setting queue: must be a queue's URL"},
		{map[string]any{"queue": url + "{nothing}"}, "setting queue: has an unknown placeholder"},
		{map[string]any{"topic": "orders"}, "setting topic: must be a topic's ARN"},
		{map[string]any{"topic": "arn:aws:sqs:eu-west-1:1:orders"}, "setting topic: must be a topic's ARN"},
		{map[string]any{"topic": "arn:aws:sns:eu-west-1:1:"}, "setting topic: must be a topic's ARN"},
		{map[string]any{"topic": "arn:aws:sns:{key}:1:orders"}, "setting topic: must be a topic's ARN"},
		{map[string]any{"queue": url, "endpoint": "localhost:4100"}, "setting endpoint: must be a URL"},
	} {
		if _, err := registry(t).Make("aws", test.settings); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v: %v, want %s", test.settings, err, test.want)
		}
	}
}

// TestRegionAndEndpoint: both come from the queue's URL or the topic's ARN, unless they are set.
func TestRegionAndEndpoint(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ setting, value, region, endpoint string }{
		{"queue", "https://sqs.eu-west-1.amazonaws.com/1/q", "eu-west-1", "https://sqs.eu-west-1.amazonaws.com"},
		{"queue", "https://sqs-fips.us-gov-west-1.amazonaws.com/1/q", "us-gov-west-1", "https://sqs-fips.us-gov-west-1.amazonaws.com"},
		{"queue", "https://sqs.cn-north-1.amazonaws.com.cn/1/q", "cn-north-1", "https://sqs.cn-north-1.amazonaws.com.cn"},
		{"queue", "https://sqs.eu-west-1.api.aws/1/q", "eu-west-1", "https://sqs.eu-west-1.api.aws"},
		{"queue", "https://vpce-1-2.sqs.eu-west-1.vpce.amazonaws.com/1/{topic}", "eu-west-1", "https://vpce-1-2.sqs.eu-west-1.vpce.amazonaws.com"},
		{"queue", "https://eu-west-1.queue.amazonaws.com/1/q", "eu-west-1", "https://eu-west-1.queue.amazonaws.com"},
		{"queue", "http://localhost:9324/1/q", "", "http://localhost:9324"},
		{"topic", "arn:aws-cn:sns:cn-north-1:1:t", "cn-north-1", ""},
	} {
		values, err := kind().Parse(map[string]any{test.setting: test.value})
		check(t, err)
		made, err := newSink(values)
		check(t, err)
		if s := made.(*sink); s.region != test.region || s.endpoint != test.endpoint {
			t.Errorf("%s: region %q, endpoint %q", test.value, s.region, s.endpoint)
		}
	}
}
