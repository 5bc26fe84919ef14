package wire

import (
	"compress/gzip"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

const (
	bufferSize    = 128 << 10
	gzipThreshold = 128 << 10 // smaller responses are not compressed
	gzipLevel     = 1
)

var (
	buffers = sync.Pool{New: func() any { b := make([]byte, 0, bufferSize); return &b }}
	zippers = sync.Pool{New: func() any { z, _ := gzip.NewWriterLevel(io.Discard, gzipLevel); return z }}
)

// Out writes one response body in few, large writes. One goroutine uses it, and
// must call Close.
type Out struct {
	w   io.Writer
	zip *gzip.Writer
	buf *[]byte
	err error
}

// Begin writes the header of the response. size is the exact number of bytes that
// will be written, or -1 if unknown.
func Begin(w http.ResponseWriter, r *http.Request, code int, contentType string, size int) *Out {
	return begin(w, code, contentType, size, size >= gzipThreshold && acceptsGzip(r))
}

// BeginLarge is Begin for a body of unknown size that is large.
func BeginLarge(w http.ResponseWriter, r *http.Request, code int, contentType string) *Out {
	return begin(w, code, contentType, -1, acceptsGzip(r))
}

func begin(w http.ResponseWriter, code int, contentType string, size int, zip bool) *Out {
	o := &Out{w: w}
	h := w.Header()
	h.Set("Content-Type", contentType)
	switch {
	case zip:
		h.Set("Content-Encoding", "gzip")
		h.Add("Vary", "Accept-Encoding")
		o.zip = zippers.Get().(*gzip.Writer)
		o.zip.Reset(w)
		o.w = o.zip
	case size >= 0:
		h.Set("Content-Length", strconv.Itoa(size))
	}
	w.WriteHeader(code)
	return o
}

func acceptsGzip(r *http.Request) bool {
	for part := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		coding, params, _ := strings.Cut(strings.TrimSpace(part), ";")
		if coding == "gzip" && strings.TrimSpace(params) != "q=0" {
			return true
		}
	}
	return false
}

// Write appends to the body. It returns the first error of the connection, which
// Close returns again. It does not retain p.
func (o *Out) Write(p []byte) (int, error) {
	if o.err != nil {
		return 0, o.err
	}
	if o.makeRoom(len(p)); len(p) >= bufferSize {
		_, o.err = o.w.Write(p)
		return len(p), o.err
	}
	*o.buf = append(*o.buf, p...)
	return len(p), o.err
}

// WriteString is Write without a copy of s.
func (o *Out) WriteString(s string) (int, error) {
	if o.err != nil || len(s) >= bufferSize {
		return o.Write([]byte(s))
	}
	o.makeRoom(len(s))
	*o.buf = append(*o.buf, s...)
	return len(s), o.err
}

// makeRoom makes room for n bytes in the buffer, or empties it for more than it can hold.
func (o *Out) makeRoom(n int) {
	if o.buf == nil {
		o.buf = buffers.Get().(*[]byte)
	}
	if len(*o.buf)+n > bufferSize {
		o.flush()
	}
}

func (o *Out) flush() {
	if o.err == nil && len(*o.buf) > 0 {
		_, o.err = o.w.Write(*o.buf)
	}
	*o.buf = (*o.buf)[:0]
}

// Close writes the remaining data. If it returns nil, the whole body was passed to
// the connection.
func (o *Out) Close() error {
	if o.buf != nil {
		o.flush()
		buffers.Put(o.buf)
		o.buf = nil
	}
	if o.zip != nil {
		if err := o.zip.Close(); o.err == nil {
			o.err = err
		}
		zippers.Put(o.zip)
		o.zip = nil
	}
	return o.err
}
