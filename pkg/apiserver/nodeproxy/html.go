package nodeproxy

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"io"
	"mime"
	"net/http"
	"net/url"
	"path"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// rewriter rewrites the links of a response to lead through the proxy: an
// absolute path on the proxied server becomes a path below the proxy's.
type rewriter struct {
	prefix string // the proxy's path, without the proxied path
	target string // host:port of the proxied server
	host   string // the host by which the client addresses the API server
}

// response rewrites a response's Location and, if it is HTML, its links. It
// leaves a body with an unknown Content-Encoding unchanged.
func (l *rewriter) response(resp *http.Response) error {
	if to := resp.Header.Get("Location"); to != "" {
		resp.Header.Set("Location", l.link(to))
		return nil
	}
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if media != "text/html" || resp.Request.Method == http.MethodHead {
		return nil
	}
	body, ok := decoder(resp)
	if !ok {
		return nil // unknown encoding
	}
	resp.Header.Del("Content-Length")
	resp.ContentLength = -1
	resp.Body = rewritten(resp.Body, body, encoder(resp), l.page)
	return nil
}

// decoder returns a function that decodes a body by the response's
// Content-Encoding; ok is false if the encoding is unknown. It reads nothing
// itself.
func decoder(resp *http.Response) (open func(io.Reader) (io.Reader, error), ok bool) {
	switch resp.Header.Get("Content-Encoding") {
	case "":
		return func(r io.Reader) (io.Reader, error) { return r, nil }, true
	case "gzip":
		return func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) }, true
	case "deflate":
		return func(r io.Reader) (io.Reader, error) { return flate.NewReader(r), nil }, true
	}
	return nil, false
}

// encoder returns a function that encodes by the response's Content-Encoding.
func encoder(resp *http.Response) func(io.Writer) io.WriteCloser {
	switch resp.Header.Get("Content-Encoding") {
	case "gzip":
		return func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) }
	case "deflate":
		return func(w io.Writer) io.WriteCloser {
			fw, _ := flate.NewWriter(w, flate.DefaultCompression) // the only error is an invalid level
			return fw
		}
	}
	return func(w io.Writer) io.WriteCloser { return nopCloser{w} }
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// rewritten returns body after it passes open, page and encode, which run in a
// goroutine. Closing the result closes body and ends the goroutine.
func rewritten(body io.ReadCloser, open func(io.Reader) (io.Reader, error), encode func(io.Writer) io.WriteCloser, page func(io.Writer, io.Reader) error) io.ReadCloser {
	pr, pw := io.Pipe()
	go func() {
		in, err := open(body)
		if err == nil {
			out := encode(pw)
			if err = page(out, in); err == nil {
				err = out.Close()
			}
		}
		pw.CloseWithError(err)
	}()
	return pipedBody{pr, body}
}

type pipedBody struct {
	*io.PipeReader
	source io.Closer
}

func (b pipedBody) Close() error {
	b.PipeReader.Close()
	return b.source.Close()
}

// maxToken is the largest HTML token, in bytes, that page parses. If a page has
// a larger one, page copies the rest of it unchanged.
const maxToken = 8 << 20

// page copies HTML and changes only links.
func (l *rewriter) page(w io.Writer, r io.Reader) error {
	out := bufio.NewWriter(w)
	z := html.NewTokenizer(r)
	z.SetMaxBuf(maxToken)
	for {
		kind := z.Next()
		raw := bytes.Clone(z.Raw()) // parsing a tag changes its bytes
		switch kind {
		case html.ErrorToken:
			return l.rest(out, z, raw, r)
		case html.StartTagToken, html.SelfClosingTagToken:
			if tag, changed := l.tag(z.Token()); changed {
				raw = []byte(tag)
			}
		}
		if _, err := out.Write(raw); err != nil {
			return err
		}
	}
}

// rest writes what the tokenizer has not returned at the end of its input, or
// all further input if a token was too long.
func (l *rewriter) rest(out *bufio.Writer, z *html.Tokenizer, raw []byte, r io.Reader) error {
	if _, err := out.Write(raw); err != nil {
		return err
	}
	switch err := z.Err(); err {
	case io.EOF:
	case html.ErrBufferExceeded:
		if _, err := out.Write(z.Buffered()); err != nil {
			return err
		}
		if _, err := io.Copy(out, r); err != nil {
			return err
		}
	default:
		return err
	}
	return out.Flush()
}

// tag rewrites the links in a tag's attributes. text is the new tag if changed
// is set.
func (l *rewriter) tag(t html.Token) (text string, changed bool) {
	for i, a := range t.Attr {
		if !isLink(t.DataAtom, a.Key) {
			continue
		}
		if to := l.link(a.Val); to != a.Val {
			t.Attr[i].Val = to
			changed = true
		}
	}
	return t.String(), changed
}

// isLink reports whether an attribute contains a URL, by the HTML standard.
func isLink(tag atom.Atom, attr string) bool {
	switch tag {
	case atom.A, atom.Area, atom.Base, atom.Link:
		return attr == "href"
	case atom.Applet:
		return attr == "codebase"
	case atom.Blockquote, atom.Del, atom.Ins, atom.Q:
		return attr == "cite"
	case atom.Body:
		return attr == "background"
	case atom.Button:
		return attr == "formaction"
	case atom.Command:
		return attr == "icon"
	case atom.Audio, atom.Embed, atom.Script, atom.Source:
		return attr == "src"
	case atom.Form:
		return attr == "action"
	case atom.Frame, atom.Iframe:
		return attr == "src" || attr == "longdesc"
	case atom.Head:
		return attr == "profile"
	case atom.Html:
		return attr == "manifest"
	case atom.Img:
		return attr == "src" || attr == "longdesc" || attr == "usemap"
	case atom.Input:
		return attr == "src" || attr == "formaction" || attr == "usemap"
	case atom.Object:
		return attr == "classid" || attr == "codebase" || attr == "data" || attr == "usemap"
	case atom.Video:
		return attr == "src" || attr == "poster"
	}
	return false
}

// link returns a link's target for the client. Links to other servers, relative
// links and links through the proxy stay as they are.
func (l *rewriter) link(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Opaque != "" {
		return text
	}
	if u.Host != "" && u.Host != l.target && u.Host != l.host || !strings.HasPrefix(u.Path, "/") {
		return text
	}
	if u.Host != l.host {
		u.Scheme, u.Host = "", ""
	}
	if u.Path == l.prefix || strings.HasPrefix(u.Path, l.prefix+"/") {
		return u.String()
	}
	slash := strings.HasSuffix(u.Path, "/")
	u.Path, u.RawPath = path.Join(l.prefix, u.Path), ""
	if slash {
		u.Path += "/"
	}
	return u.String()
}
