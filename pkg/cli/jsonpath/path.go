package jsonpath

import (
	"strconv"
	"strings"
)

// path reads steps until something that is none.
func (p *parser) path() (path, error) {
	p.depth++
	defer func() { p.depth-- }()
	if p.depth > maxDepth {
		return path{}, p.errorf("nested too deeply")
	}
	var out path
	if p.accept("$") {
		out.root = true
	} else {
		p.accept("@")
	}
	for !p.done() {
		var more []step
		var err error
		switch {
		case p.accept(".."):
			more = []step{descend{}}
			if !p.done() && p.in[p.at] != '[' {
				var name step
				name, err = p.name()
				more = append(more, name)
			}
		case p.accept("."):
			if p.done() || strings.IndexByte(" }[)", p.in[p.at]) >= 0 {
				continue // a lone dot is the value itself
			}
			var name step
			name, err = p.name()
			more = []step{name}
		case p.accept("["):
			more, err = p.bracket()
		default:
			return out, nil
		}
		if err != nil {
			return path{}, err
		}
		out.steps = append(out.steps, more...)
	}
	return out, nil
}

// name reads a field's name after a dot; a backslash takes the next character
// as it is, so that a name may hold dots.
func (p *parser) name() (step, error) {
	if p.accept("*") {
		return wildcard{}, nil
	}
	var name strings.Builder
	for !p.done() {
		c := p.in[p.at]
		if c == '\\' && p.at+1 < len(p.in) {
			p.at++
			name.WriteByte(p.in[p.at])
			p.at++
			continue
		}
		if strings.IndexByte(" \t\r\n.[]{}()=<>!,'\"|&", c) >= 0 {
			break
		}
		name.WriteByte(c)
		p.at++
	}
	if name.Len() == 0 {
		return nil, p.errorf("a field's name is missing")
	}
	return field(name.String()), nil
}

// bracket reads what follows "[": a name, an index, a section, a wildcard, a
// filter, or several names and indexes.
func (p *parser) bracket() ([]step, error) {
	p.space()
	switch {
	case p.accept("*"):
		return []step{wildcard{}}, p.closeBracket()
	case p.accept("?("):
		f, err := p.filter()
		if err != nil {
			return nil, err
		}
		return []step{f}, p.closeBracket()
	}
	var all union
	for {
		p.space()
		item, err := p.item()
		if err != nil {
			return nil, err
		}
		all = append(all, path{steps: item})
		p.space()
		if p.accept(",") {
			continue
		}
		if err := p.closeBracket(); err != nil {
			return nil, err
		}
		if len(all) == 1 {
			return item, nil
		}
		return []step{all}, nil
	}
}

func (p *parser) closeBracket() error {
	p.space()
	if !p.accept("]") {
		return p.errorf("missing ]")
	}
	return nil
}

// item reads one member of a bracket. A quoted one is a path from here: 'a.b'
// is the field b of a, 'a\.b' is the field "a.b".
func (p *parser) item() ([]step, error) {
	if p.done() {
		return nil, p.errorf("missing ]")
	}
	if c := p.in[p.at]; c == '\'' || c == '"' {
		end := strings.IndexByte(p.in[p.at+1:], c)
		if end < 0 {
			return nil, p.errorf("unterminated string")
		}
		inner := p.in[p.at+1 : p.at+1+end]
		p.at += end + 2
		return quotedPath(inner)
	}
	end := strings.IndexAny(p.in[p.at:], ",]")
	if end < 0 {
		return nil, p.errorf("missing ]")
	}
	word := strings.TrimSpace(p.in[p.at : p.at+end])
	s, err := p.number(word)
	p.at += end
	return []step{s}, err
}

// quotedPath splits a quoted name at its dots, except those after a backslash.
func quotedPath(s string) ([]step, error) {
	var out []step
	var name strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\' && i+1 < len(s):
			i++
			name.WriteByte(s[i])
		case s[i] == '.':
			if name.Len() > 0 {
				out = append(out, field(name.String()))
			}
			name.Reset()
		default:
			name.WriteByte(s[i])
		}
	}
	return append(out, field(name.String())), nil
}

// number reads an index or a section.
func (p *parser) number(word string) (step, error) {
	parts := strings.Split(word, ":")
	if len(parts) > 3 {
		return nil, p.errorf("invalid section [%s]", word)
	}
	var numbers [3]*int
	for i, part := range parts {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		n, err := strconv.Atoi(part)
		if err != nil {
			return nil, p.errorf("[%s] is neither a number, a section, nor a quoted name", word)
		}
		numbers[i] = &n
	}
	if len(parts) == 1 {
		if numbers[0] == nil {
			return nil, p.errorf("[] is empty")
		}
		return index(*numbers[0]), nil
	}
	if numbers[2] != nil && *numbers[2] <= 0 {
		return nil, p.errorf("[%s]: the step must be above zero", word)
	}
	return section{numbers[0], numbers[1], numbers[2]}, nil
}

// filter reads "left op right)" or "left)" after "?(".
func (p *parser) filter() (filter, error) {
	left, err := p.operand()
	if err != nil {
		return filter{}, err
	}
	p.space()
	for _, op := range []string{"==", "!=", "<=", ">=", "<", ">"} {
		if !p.accept(op) {
			continue
		}
		right, err := p.operand()
		if err != nil {
			return filter{}, err
		}
		p.space()
		if !p.accept(")") {
			return filter{}, p.errorf("missing ) after the comparison")
		}
		return filter{left, right, op}, nil
	}
	if !p.accept(")") {
		return filter{}, p.errorf("want a comparison (== != < <= > >=) or )")
	}
	return filter{left: left}, nil
}

func (p *parser) operand() (operand, error) {
	p.space()
	if p.done() {
		return operand{}, p.errorf("a value is missing")
	}
	switch c := p.in[p.at]; {
	case c == '@' || c == '$' || c == '.':
		path, err := p.path()
		return operand{path: &path}, err
	case c == '"' || c == '\'':
		s, err := p.quoted()
		return operand{literal: s}, err
	}
	end := strings.IndexAny(p.in[p.at:], " )=<>!")
	if end < 0 {
		end = len(p.in) - p.at
	}
	word := p.in[p.at : p.at+end]
	literal, ok := parseLiteral(word)
	if !ok {
		return operand{}, p.errorf("%q is neither a path (@.name), a number, true, false, nor a quoted text", word)
	}
	p.at += end
	return operand{literal: literal}, nil
}

func parseLiteral(word string) (any, bool) {
	if n, err := strconv.ParseInt(word, 10, 64); err == nil {
		return n, true
	}
	if f, err := strconv.ParseFloat(word, 64); err == nil {
		return f, true
	}
	if b, err := strconv.ParseBool(word); err == nil {
		return b, true
	}
	return nil, false
}
