package rabbitmq

import (
	amqp "github.com/rabbitmq/amqp091-go"
)

// channel is a channel with confirmations. One Send uses it at a time.
type channel struct {
	*amqp.Channel
	returns  <-chan amqp.Return
	closed   <-chan *amqp.Error
	returned map[string]amqp.Return // by message id, from their arrival to their confirmation
	ended    *amqp.Error            // why it is closed, once that was asked for
}

// openChannel opens a channel. Each one has to be told anew to confirm. The
// returns of a whole window fit in: the library drops those that it can't hand
// over within five seconds, and a message that is returned is also confirmed,
// so that each one dropped would be a message lost.
func (n *session) openChannel() (*channel, error) {
	plain, err := n.connection.Channel()
	if err != nil {
		return nil, err
	}
	c := &channel{
		Channel: plain,
		returns: plain.NotifyReturn(make(chan amqp.Return, n.sink.options.Window)),
		closed:  plain.NotifyClose(make(chan *amqp.Error, 1)),
	}
	if err := plain.Confirm(false); err != nil {
		return nil, err
	}
	return c, nil
}

// send publishes a letter. The error is [amqp.ErrClosed] if nothing of it went
// out because the channel or the connection is closed.
func (c *channel) send(l letter, mandatory bool) (*amqp.DeferredConfirmation, error) {
	return c.PublishWithDeferredConfirm(l.exchange, l.routingKey, mandatory, false, l.publishing)
}

// takeReturn returns what came back of a message that is confirmed. It comes
// before the confirmation.
func (c *channel) takeReturn(id string) (amqp.Return, bool) {
	for len(c.returns) > 0 {
		if c.returned == nil {
			c.returned = map[string]amqp.Return{}
		}
		r := <-c.returns
		r.Body, r.Headers = nil, nil
		c.returned[r.MessageId] = r
	}
	r, found := c.returned[id]
	if found {
		delete(c.returned, id)
	}
	return r, found
}

// end returns why a closed channel is closed. Nil means that it was closed from
// this side.
func (c *channel) end() *amqp.Error {
	if reason, first := <-c.closed; first {
		c.ended = reason
	}
	return c.ended
}

// why is end as an error.
func (c *channel) why() error {
	if reason := c.end(); reason != nil {
		return reason
	}
	return amqp.ErrClosed
}
