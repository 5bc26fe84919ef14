package streams

import (
	"encoding/base64"
	"errors"
	"io"
	"sync"
	"time"
)

// WebSocket subprotocols of exec and attach. All multiplex channels; the base64
// protocols encode them as text. From v4 on, the error channel carries a metav1.Status;
// v5 can close a single channel.
const (
	ProtocolV5       = "v5.channel.k8s.io"
	ProtocolV4       = "v4.channel.k8s.io"
	ProtocolV1       = "channel.k8s.io"
	ProtocolV4Base64 = "v4.base64.channel.k8s.io"
	ProtocolV1Base64 = "base64.channel.k8s.io"
)

// Channels of exec and attach: the first three are the file descriptors.
const (
	Stdin byte = iota
	Stdout
	Stderr
	ErrorChannel
	Resize

	closeChannel = 255 // v5: "the channel in the next byte is closed"
)

// grace is how long a side that is done waits for the other to close the connection.
// Closing at once could make the kernel discard data that the peer has not yet received.
const grace = 3 * time.Second

// Channels multiplexes streams over one WebSocket.
type Channels struct {
	ws       *WebSocket
	base64   bool
	canClose bool
	in       map[byte]*io.PipeWriter
	out      map[byte]*io.PipeReader
	ended    chan struct{} // Run has returned
}

// NewChannels returns the channels of a WebSocket with one of the protocols above.
// Messages on channels not in read are dropped. Run must be called to receive.
func NewChannels(ws *WebSocket, protocol string, read ...byte) *Channels {
	c := &Channels{
		ws:       ws,
		base64:   protocol == ProtocolV4Base64 || protocol == ProtocolV1Base64,
		canClose: protocol == ProtocolV5,
		in:       map[byte]*io.PipeWriter{},
		out:      map[byte]*io.PipeReader{},
		ended:    make(chan struct{}),
	}
	for _, ch := range read {
		c.out[ch], c.in[ch] = io.Pipe()
	}
	return c
}

// Reader returns the reader of a channel. It reads until the peer closes the channel or
// the connection ends. Closing it drops the messages that still arrive.
func (c *Channels) Reader(ch byte) io.ReadCloser { return c.out[ch] }

// Writer returns a writer that sends each Write as one message on a channel.
func (c *Channels) Writer(ch byte) io.Writer { return channelWriter{c, ch} }

type channelWriter struct {
	c  *Channels
	ch byte
}

func (w channelWriter) Write(p []byte) (int, error) {
	var err error
	if w.c.base64 {
		text := make([]byte, 1+base64.StdEncoding.EncodedLen(len(p)))
		text[0] = '0' + w.ch
		base64.StdEncoding.Encode(text[1:], p)
		err = w.c.ws.Write(OpText, text)
	} else {
		err = w.c.ws.Write(OpBinary, []byte{w.ch}, p)
	}
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

// CloseWrite tells the peer that a channel has ended. Protocols before v5 cannot do so:
// it then returns false.
func (c *Channels) CloseWrite(ch byte) (bool, error) {
	if !c.canClose {
		return false, nil
	}
	return true, c.ws.Write(OpBinary, []byte{closeChannel, ch})
}

// Run passes incoming messages to the readers until the connection ends; then all
// readers see EOF or the error. A slow reader blocks the others.
func (c *Channels) Run() error {
	defer close(c.ended)
	err := c.run()
	end := err
	var closed *CloseError
	if errors.As(err, &closed) {
		end = io.EOF
	}
	for _, w := range c.in {
		w.CloseWithError(end)
	}
	return err
}

func (c *Channels) run() error {
	for {
		_, body, err := c.ws.Next()
		if err != nil {
			return err
		}
		var head [2]byte
		if _, err := io.ReadFull(body, head[:1]); err == io.EOF {
			continue
		} else if err != nil {
			return err
		}
		if c.canClose && head[0] == closeChannel {
			if _, err := io.ReadFull(body, head[1:]); err != nil {
				return c.ws.fail("a close signal for no channel")
			}
			if w := c.in[head[1]]; w != nil {
				w.Close()
			}
			continue
		}
		if err := c.deliver(head[0], body); err != nil {
			return err
		}
	}
}

// deliver copies a message to its channel's reader. It drops the message if there is no
// reader or the reader is closed.
func (c *Channels) deliver(ch byte, body io.Reader) error {
	if c.base64 {
		ch -= '0'
		body = base64.NewDecoder(base64.StdEncoding, body)
	}
	w := c.in[ch]
	if w == nil {
		return nil
	}
	_, err := io.Copy(w, body)
	var bad base64.CorruptInputError
	switch {
	case errors.Is(err, io.ErrClosedPipe):
		return nil
	case errors.As(err, &bad):
		return c.ws.fail("not base64")
	}
	return err
}

// Close closes the connection gracefully: it sends a close frame, then waits up to grace
// for the peer to close, dropping what still arrives. Run must have been started; it has
// returned when Close returns.
func (c *Channels) Close(code int, text string) {
	for _, r := range c.out {
		r.Close()
	}
	t := time.AfterFunc(grace, func() { c.ws.Hangup() })
	defer t.Stop()
	if c.ws.Close(code, text) == nil {
		<-c.ended
	}
	c.ws.Hangup()
	<-c.ended
}

// Heartbeat calls beat every period until it fails or stop is called. stop waits for the
// goroutine to end.
func (w *WebSocket) Heartbeat(period time.Duration, beat func() error) (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		t := time.NewTicker(period)
		defer t.Stop()
		for {
			select {
			case <-done:
				return
			case <-t.C:
			}
			if beat() != nil {
				return
			}
		}
	})
	return sync.OnceFunc(func() { close(done); wg.Wait() })
}
