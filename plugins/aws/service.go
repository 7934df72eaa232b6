package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"sync/atomic"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	snstypes "github.com/aws/aws-sdk-go-v2/service/sns/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// Limits of requests.
const (
	mostEntries = 10
	queueBytes  = 1 << 20
	topicBytes  = 256 << 10
)

// service is SQS or SNS.
type service interface {
	// find returns an error if the queue or topic doesn't exist or can't be reached.
	find(ctx context.Context, address string) error

	// send sends entries to a queue or topic. Without an error, it returns an answer for each entry.
	send(ctx context.Context, address string, entries []*entry) ([]answer, error)

	// bytes returns the maximum size of a request and of a message.
	bytes() int
}

// answer is the service's answer to one entry.
type answer struct {
	receipt    string // set if the entry was stored
	code, text string // the error, if the entry was not stored
	byClient   bool   // the entry is the cause of the error
}

// connect returns the service with the credentials of the SDK's chain. The SDK caches credentials, and replaces them
// before they expire.
func (s *sink) connect(ctx context.Context) (service, aws.CredentialsProvider, error) {
	loaded, err := config.LoadDefaultConfig(ctx, func(o *config.LoadOptions) error {
		o.Region, o.HTTPClient, o.Credentials = s.region, s.http, s.credentials
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("read the SDK's configuration: %w", err)
	}
	if loaded.Region == "" {
		return nil, nil, errors.New("the region is missing: set region, or AWS_REGION in the plug-in's env")
	}
	loaded.Credentials = login{loaded.Credentials}
	loaded.HTTPClient = client{loaded.HTTPClient}
	loaded.Retryer = func() aws.Retryer { return aws.NopRetryer{} } // the relay tries again
	if s.endpoint != "" {
		loaded.BaseEndpoint = &s.endpoint
	}
	if s.queues {
		return queueService{sqs.NewFromConfig(loaded)}, loaded.Credentials, nil
	}
	return topicService{sns.NewFromConfig(loaded)}, loaded.Credentials, nil
}

// login wraps an error of Retrieve in a loginError.
type login struct{ aws.CredentialsProvider }

func (l login) Retrieve(ctx context.Context) (aws.Credentials, error) {
	got, err := l.CredentialsProvider.Retrieve(ctx)
	if err != nil {
		return got, &loginError{err}
	}
	return got, nil
}

type loginError struct{ err error }

func (e *loginError) Error() string { return "get the credentials: " + e.err.Error() }
func (e *loginError) Unwrap() error { return e.err }

// client wraps the error of a request in an unsentError if the request got no connection, so that nothing was
// written.
type client struct{ aws.HTTPClient }

func (c client) Do(request *http.Request) (*http.Response, error) {
	var connected atomic.Bool
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }}
	response, err := c.HTTPClient.Do(request.WithContext(httptrace.WithClientTrace(request.Context(), trace)))
	if err != nil && !connected.Load() {
		return nil, &unsentError{err}
	}
	return response, err
}

type unsentError struct{ err error }

func (e *unsentError) Error() string { return e.err.Error() }
func (e *unsentError) Unwrap() error { return e.err }

type queueService struct{ client *sqs.Client }

func (queueService) bytes() int { return queueBytes }

func (s queueService) find(ctx context.Context, url string) error {
	_, err := s.client.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{QueueUrl: &url, AttributeNames: []sqstypes.QueueAttributeName{sqstypes.QueueAttributeNameQueueArn}})
	return err
}

func (s queueService) send(ctx context.Context, url string, entries []*entry) ([]answer, error) {
	request := &sqs.SendMessageBatchInput{QueueUrl: &url}
	for i, e := range entries {
		attributes := make(map[string]sqstypes.MessageAttributeValue, len(e.attributes))
		for name, value := range e.attributes {
			attributes[name] = sqstypes.MessageAttributeValue{DataType: aws.String(dataType), StringValue: &value}
		}
		request.Entries = append(request.Entries, sqstypes.SendMessageBatchRequestEntry{
			Id: aws.String(strconv.Itoa(i)), MessageBody: &e.body, MessageAttributes: attributes, MessageGroupId: optional(e.group), MessageDeduplicationId: optional(e.dedup),
		})
	}
	response, err := s.client.SendMessageBatch(ctx, request)
	if err != nil {
		return nil, err
	}
	answers := unanswered(len(entries))
	for _, stored := range response.Successful {
		put(answers, stored.Id, answer{receipt: receipt(stored.MessageId, stored.SequenceNumber)})
	}
	for _, failed := range response.Failed {
		put(answers, failed.Id, answer{code: aws.ToString(failed.Code), text: aws.ToString(failed.Message), byClient: failed.SenderFault})
	}
	return answers, nil
}

type topicService struct{ client *sns.Client }

func (topicService) bytes() int { return topicBytes }

func (s topicService) find(ctx context.Context, arn string) error {
	_, err := s.client.GetTopicAttributes(ctx, &sns.GetTopicAttributesInput{TopicArn: &arn})
	return err
}

func (s topicService) send(ctx context.Context, arn string, entries []*entry) ([]answer, error) {
	request := &sns.PublishBatchInput{TopicArn: &arn}
	for i, e := range entries {
		attributes := make(map[string]snstypes.MessageAttributeValue, len(e.attributes))
		for name, value := range e.attributes {
			attributes[name] = snstypes.MessageAttributeValue{DataType: aws.String(dataType), StringValue: &value}
		}
		request.PublishBatchRequestEntries = append(request.PublishBatchRequestEntries, snstypes.PublishBatchRequestEntry{
			Id: aws.String(strconv.Itoa(i)), Message: &e.body, MessageAttributes: attributes, MessageGroupId: optional(e.group), MessageDeduplicationId: optional(e.dedup),
		})
	}
	response, err := s.client.PublishBatch(ctx, request)
	if err != nil {
		return nil, err
	}
	answers := unanswered(len(entries))
	for _, stored := range response.Successful {
		put(answers, stored.Id, answer{receipt: receipt(stored.MessageId, stored.SequenceNumber)})
	}
	for _, failed := range response.Failed {
		put(answers, failed.Id, answer{code: aws.ToString(failed.Code), text: aws.ToString(failed.Message), byClient: failed.SenderFault})
	}
	return answers, nil
}

func optional(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// receipt returns the id that the service gave the message and, for FIFO, the message's sequence number.
func receipt(id, sequence *string) string {
	if sequence == nil {
		return aws.ToString(id)
	}
	return aws.ToString(id) + " " + *sequence
}

// unanswered returns an error answer for each of n entries. The callers replace the answers of the entries that the service's
// response mentions.
func unanswered(n int) []answer {
	answers := make([]answer, n)
	for i := range answers {
		answers[i] = answer{code: "InternalError", text: "the answer doesn't mention the message"}
	}
	return answers
}

func put(answers []answer, id *string, a answer) {
	if i, err := strconv.Atoi(aws.ToString(id)); err == nil && i >= 0 && i < len(answers) {
		answers[i] = a
	}
}
