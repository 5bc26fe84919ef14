package nodeproxy

import (
	"bytes"
	"html"
	"strings"
	"testing"
)

var proxied = &rewriter{prefix: "/p/proxy", target: "10.0.0.5:80", host: "api:6443"}

func TestLinks(t *testing.T) {
	for in, want := range map[string]string{
		"/":                          "/p/proxy/",
		"/a/b/":                      "/p/proxy/a/b/",
		"/a?q=1#f":                   "/p/proxy/a?q=1#f",
		"":                           "",
		"a/b":                        "a/b",
		"../up":                      "../up",
		"#top":                       "#top",
		"?q":                         "?q",
		"/p/proxy/there":             "/p/proxy/there",
		"/p/proxying":                "/p/proxy/p/proxying",
		"http://10.0.0.5:80/x":       "/p/proxy/x",
		"https://10.0.0.5:80/x/":     "/p/proxy/x/",
		"//10.0.0.5:80/x":            "/p/proxy/x",
		"https://api:6443/x":         "https://api:6443/p/proxy/x",
		"https://api:6443/p/proxy/x": "https://api:6443/p/proxy/x",
		"http://elsewhere/x":         "http://elsewhere/x",
		"mailto:a@b":                 "mailto:a@b",
		"javascript:x()":             "javascript:x()",
		"data:text/plain,/x":         "data:text/plain,/x",
		"%zz":                        "%zz",
	} {
		if got := proxied.link(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}

func TestPages(t *testing.T) {
	for in, want := range map[string]string{
		`<!DOCTYPE html><A HREF=/x>T&amp;</A><!-- <a href="/y"> -->`:   `<!DOCTYPE html><a href="/p/proxy/x">T&amp;</A><!-- <a href="/y"> -->`,
		`<script src="/s.js">var x = '<a href="/no">';</script>`:       `<script src="/p/proxy/s.js">var x = '<a href="/no">';</script>`,
		`<img src='a.png' alt="/x"><p title="/t">`:                     `<img src='a.png' alt="/x"><p title="/t">`,
		`<form action="/f"><input formaction="/g"><button formaction>`: `<form action="/p/proxy/f"><input formaction="/p/proxy/g"><button formaction>`,
		`<a href="/x?a=1&amp;b=2">`:                                    `<a href="/p/proxy/x?a=1&amp;b=2">`,
		`no html at all`:                                               `no html at all`,
		`<a href="/unclosed`:                                           `<a href="/unclosed`,
		`<video src="/v" poster="/p.png"/>`:                            `<video src="/p/proxy/v" poster="/p/proxy/p.png"/>`,
	} {
		var out bytes.Buffer
		if err := proxied.page(&out, strings.NewReader(in)); err != nil || out.String() != want {
			t.Errorf("%s\nbecame %s\nwant   %s (%v)", in, out.String(), want, err)
		}
	}
}

// A page with a token above maxToken passes through unchanged from there on.
func TestAPageTooLongToReadPassesThrough(t *testing.T) {
	in := `<a href="/x">` + strings.Repeat("y", 2*maxToken) + `<a href="/z">`
	want := `<a href="/p/proxy/x">` + in[len(`<a href="/x">`):]
	var out bytes.Buffer
	if err := proxied.page(&out, strings.NewReader(in)); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); got != want {
		t.Errorf("%d bytes became %d, want %d", len(in), len(got), len(want))
	}
}

func FuzzPages(f *testing.F) {
	for _, s := range []string{`<a href="/x">`, `<script>`, `<a href=/x/>`, `<!--`, `<textarea><a href=/x>`, "<a\x00href='/'>", `<a href="/&#x2f;">`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		var out bytes.Buffer
		if err := proxied.page(&out, strings.NewReader(in)); err != nil {
			t.Fatalf("%q: %v", in, err)
		}
		if !strings.Contains(html.UnescapeString(in), "/") && out.String() != in {
			t.Errorf("%q has no link, and became %q", in, out.String())
		}
		var again bytes.Buffer
		if err := proxied.page(&again, bytes.NewReader(out.Bytes())); err != nil || again.String() != out.String() {
			t.Errorf("%q: a second rewriting of %q gives %q, %v", in, out.String(), again.String(), err)
		}
	})
}
