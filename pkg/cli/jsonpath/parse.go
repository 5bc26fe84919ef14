package jsonpath

import (
	"fmt"
	"strconv"
	"strings"
)

// Template is a parsed template. It is safe for concurrent use.
type Template struct {
	nodes []node
}

// node is a piece of a template.
type node interface{ isNode() }

type text string

// expression prints what a path finds.
type expression struct{ path path }

// loop prints its body for each value that the path finds.
type loop struct {
	over path
	body []node
}

func (text) isNode()       {}
func (expression) isNode() {}
func (loop) isNode()       {}

// path is a way from a value to others, step by step. It starts at the current
// value, or at the root.
type path struct {
	root  bool
	steps []step
}

type step interface{ isStep() }

type (
	field    string // .name
	wildcard struct{}
	descend  struct{} // ..
	index    int
	section  struct { // [from:to:by]; nil is not given
		from, to, by *int
	}
	union  []path   // ['a','b'], [0,2]
	filter struct { // ?(@.a op @.b)
		left, right operand
		op          string // empty: left exists
	}
)

func (field) isStep()    {}
func (wildcard) isStep() {}
func (descend) isStep()  {}
func (index) isStep()    {}
func (section) isStep()  {}
func (union) isStep()    {}
func (filter) isStep()   {}

// operand is one side of a comparison: a path or a literal.
type operand struct {
	path    *path
	literal any // string, float64, int64, bool
}

// Parse reads a template.
func Parse(template string) (*Template, error) {
	p := &parser{in: template}
	nodes, err := p.nodes(false)
	if err != nil {
		return nil, fmt.Errorf("jsonpath %q: %w", template, err)
	}
	return &Template{nodes}, nil
}

// ParsePath reads one expression the way people write it where no text may
// stand around it: {.a.b}, .a.b or a.b.
func ParsePath(expr string) (*Template, error) {
	bare := strings.TrimSpace(expr)
	if strings.HasPrefix(bare, "{") && strings.HasSuffix(bare, "}") {
		bare = bare[1 : len(bare)-1]
	}
	if bare == "" {
		return nil, fmt.Errorf("jsonpath %q: no path is given", expr)
	}
	if !strings.ContainsAny(bare[:1], ".[$@") {
		bare = "." + bare
	}
	t, err := Parse("{" + bare + "}")
	if err == nil && (len(t.nodes) != 1 || !isExpression(t.nodes[0])) {
		err = fmt.Errorf("jsonpath %q: want one path, such as .metadata.name", expr)
	}
	return t, err
}

func isExpression(n node) bool {
	_, ok := n.(expression)
	return ok
}

const maxDepth = 100 // of nested ranges, brackets and filters

type parser struct {
	in    string
	at    int
	depth int
}

func (p *parser) done() bool              { return p.at >= len(p.in) }
func (p *parser) sees(prefix string) bool { return strings.HasPrefix(p.in[p.at:], prefix) }

func (p *parser) errorf(format string, args ...any) error {
	return fmt.Errorf("at position %d: %w", p.at+1, fmt.Errorf(format, args...))
}

func (p *parser) accept(prefix string) bool {
	if p.sees(prefix) {
		p.at += len(prefix)
		return true
	}
	return false
}

func (p *parser) space() {
	for !p.done() && strings.IndexByte(" \t\r\n", p.in[p.at]) >= 0 {
		p.at++
	}
}

// nodes reads until the end of the template or, inside a range, its {end}.
func (p *parser) nodes(inRange bool) ([]node, error) {
	p.depth++
	defer func() { p.depth-- }()
	if p.depth > maxDepth {
		return nil, p.errorf("nested too deeply")
	}
	var out []node
	for !p.done() {
		if open := strings.IndexByte(p.in[p.at:], '{'); open != 0 {
			if open < 0 {
				open = len(p.in) - p.at
			}
			out = append(out, text(p.in[p.at:p.at+open]))
			p.at += open
			continue
		}
		p.at++
		p.space()
		if p.word("end") {
			if !inRange {
				return nil, p.errorf("{end} without {range}")
			}
			return out, p.closeBrace()
		}
		more, err := p.action()
		if err != nil {
			return nil, err
		}
		out = append(out, more...)
	}
	if inRange {
		return nil, p.errorf("{range} without {end}")
	}
	return out, nil
}

// word accepts a keyword that ends there.
func (p *parser) word(w string) bool {
	rest := p.in[p.at:]
	if !strings.HasPrefix(rest, w) || (len(rest) > len(w) && strings.IndexByte(" \t}", rest[len(w)]) < 0) {
		return false
	}
	p.at += len(w)
	return true
}

func (p *parser) closeBrace() error {
	p.space()
	if !p.accept("}") {
		return p.errorf("missing }")
	}
	return nil
}

// action reads what stands in braces: a range, quoted text, or paths.
func (p *parser) action() ([]node, error) {
	if p.word("range") {
		p.space()
		over, err := p.path()
		if err != nil {
			return nil, err
		}
		if err := p.closeBrace(); err != nil {
			return nil, err
		}
		body, err := p.nodes(true)
		return []node{loop{over, body}}, err
	}
	var out []node
	for {
		p.space()
		switch {
		case p.done():
			return nil, p.errorf("missing }")
		case p.accept("}"):
			return out, nil
		case p.in[p.at] == '"' || p.in[p.at] == '\'':
			s, err := p.quoted()
			if err != nil {
				return nil, err
			}
			out = append(out, text(s))
		default:
			at := p.at
			path, err := p.path()
			if err != nil {
				return nil, err
			}
			if p.at == at {
				return nil, p.errorf("unexpected %q", p.in[p.at])
			}
			out = append(out, expression{path})
		}
	}
}

// quoted reads a string in single or double quotes, with Go's escapes.
func (p *parser) quoted() (string, error) {
	quote := p.in[p.at]
	for end := p.at + 1; end < len(p.in); end++ {
		switch p.in[end] {
		case '\\':
			end++
		case quote:
			inner := p.in[p.at+1 : end]
			p.at = end + 1
			return unescape(inner), nil
		}
	}
	return "", p.errorf("unterminated string")
}

// unescape reads escapes; text with escapes of no meaning stays as it is.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var out strings.Builder
	for s != "" {
		if s[0] != '\\' {
			i := strings.IndexByte(s, '\\')
			if i < 0 {
				i = len(s)
			}
			out.WriteString(s[:i])
			s = s[i:]
			continue
		}
		if len(s) > 1 && (s[1] == '\'' || s[1] == '"') {
			out.WriteByte(s[1])
			s = s[2:]
			continue
		}
		r, _, rest, err := strconv.UnquoteChar(s, 0)
		if err != nil {
			out.WriteByte(s[0])
			s = s[1:]
			continue
		}
		out.WriteRune(r)
		s = rest
	}
	return out.String()
}
