package main

import (
	"cmp"
	"errors"
	"net/url"
	"regexp"
	"strings"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

func kind() sinks.Kind {
	return sinks.Kind{
		Name:    "aws",
		Summary: "Sends each message to a queue of Amazon SQS or to a topic of Amazon SNS.",
		Fields: []settings.Field{
			{Name: "queue", Type: settings.TypeString, Check: settings.Check(checkQueue), Help: "The URL of the SQS queue. After the host, it may contain {topic}, {key}, {id} and {header:NAME}, which each message fills. Either `queue` or `topic` is required."},
			{Name: "topic", Type: settings.TypeString, Check: settings.Check(checkTopic), Help: "The ARN of the SNS topic. After the account, it may contain the same placeholders as `queue`."},
			{Name: "region", Type: settings.TypeString, Help: "The region. By default the region in the queue's URL or the topic's ARN, otherwise AWS_REGION or the profile's region."},
			{Name: "endpoint", Type: settings.TypeString, Check: settings.Check(checkURL), Help: "The URL of the service, for example of a VPC endpoint or an emulator. By default the host of the queue's URL, or the region's public endpoint of SNS."},
			{Name: "concurrency", Type: settings.TypeInt, Default: "8", Min: "1", Max: "100", Help: "The maximum number of concurrent requests. A request has up to 10 messages, at most one of each key."},
		},
		New: newSink,
	}
}

func newSink(s settings.Values) (sinks.Sink, error) {
	queue, topic := s.Text("queue"), s.Text("topic")
	if (queue == "") == (topic == "") {
		return nil, errors.New("either queue or topic is required")
	}
	to, err := settings.ParseTemplate(cmp.Or(queue, topic))
	if err != nil {
		return nil, err
	}
	made := &sink{to: to, queues: queue != "", slots: make(chan struct{}, s.Int("concurrency")), http: awshttp.NewBuildableClient(), region: s.Text("region"), endpoint: s.Text("endpoint")}
	if made.queues {
		at, _ := url.Parse(to.Texts()[0]) // checkQueue has already parsed this URL
		made.endpoint = cmp.Or(made.endpoint, at.Scheme+"://"+at.Host)
		if host := awsHost.FindStringSubmatch(at.Host); host != nil {
			made.region = cmp.Or(made.region, host[1]+host[2])
		}
	} else {
		made.region = cmp.Or(made.region, strings.Split(topic, ":")[3])
	}
	return made, nil
}

// awsHost finds the region in the host of a queue's URL, in the current form or in
// an old one such as eu-west-1.queue.amazonaws.com.
var awsHost = regexp.MustCompile(`(?:^|\.)sqs(?:-fips)?\.([a-z]+(?:-[a-z]+)+-[0-9]+)\.|^([a-z]+(?:-[a-z]+)+-[0-9]+)\.queue\.`)

// The following functions check settings. Their errors complete the sentence "the setting …".

func checkURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil {
		return errors.New("must be a URL such as https://host")
	}
	return nil
}

func checkQueue(text string) error {
	t, err := settings.ParseTemplate(text)
	if err != nil {
		return err
	}
	at, err := url.Parse(t.Texts()[0])
	if err != nil || checkURL(t.Texts()[0]) != nil || !strings.HasPrefix(at.Path, "/") || t.Places() == 0 && strings.Count(at.Path, "/") < 2 {
		return errors.New("must be a queue's URL, such as https://sqs.eu-west-1.amazonaws.com/123456789012/orders.fifo")
	}
	return nil
}

func checkTopic(text string) error {
	t, err := settings.ParseTemplate(text)
	if err != nil {
		return err
	}
	const parts = 6 // arn:aws:sns:region:account:name
	if at := strings.Split(t.Texts()[0], ":"); len(at) != parts || at[0] != "arn" || at[2] != "sns" || at[3] == "" || at[4] == "" || t.Places() == 0 && at[5] == "" {
		return errors.New("must be a topic's ARN, such as arn:aws:sns:eu-west-1:123456789012:orders.fifo")
	}
	return nil
}

// address returns the queue's URL or the topic's ARN for a message.
func (s *sink) address(m *sinks.Message) (string, error) {
	if s.to.Places() == 0 {
		return s.to.Texts()[0], nil
	}
	text, err := s.to.Fill(&m.Message, checkName)
	return text, settings.PrefixError(s.what(), err)
}

var nameCharacters = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.fifo)?$`)

// checkName returns a value that is part of a name, or an error that completes the sentence "the value …".
func checkName(_ int, value string) (string, error) {
	if !nameCharacters.MatchString(value) {
		return "", errors.New("can't be part of the name of a queue or topic: use letters, digits, hyphens and underscores, with .fifo at the end if it is a FIFO queue or topic")
	}
	return value, nil
}

func (s *sink) what() string {
	if s.queues {
		return "queue"
	}
	return "topic"
}
