package daemon

import "github.com/spf13/pflag"

// ParsedVar registers a flag whose text parse converts to *p. The default is the
// conversion of text, which parse must accept.
func ParsedVar[T any](fs *pflag.FlagSet, p *T, name, text string, parse func(string) (T, error), usage string) {
	v := &parsed[T]{to: p, parse: parse}
	if err := v.Set(text); err != nil {
		panic(err) // the default is part of the program
	}
	fs.Var(v, name, usage)
}

type parsed[T any] struct {
	to    *T
	parse func(string) (T, error)
	text  string
}

func (v *parsed[T]) String() string { return v.text }
func (v *parsed[T]) Type() string   { return "string" }

func (v *parsed[T]) Set(text string) (err error) {
	if *v.to, err = v.parse(text); err == nil {
		v.text = text
	}
	return err
}

// ParsedSliceVar registers a flag for a list of texts, each of which parse converts
// to an element of *p. Like any such flag it takes a comma-separated list and may be
// repeated. The default is the conversion of texts, which parse must accept.
func ParsedSliceVar[T any](fs *pflag.FlagSet, p *[]T, name string, texts []string, parse func(string) (T, error), usage string) {
	fs.StringSliceVar(&[]string{}, name, texts, usage)
	f := fs.Lookup(name)
	v := &parsedSlice[T]{Value: f.Value, SliceValue: f.Value.(pflag.SliceValue), to: p, parse: parse}
	if err := v.convert(); err != nil {
		panic(err) // the default is part of the program
	}
	f.Value = v
	if len(texts) == 0 {
		f.DefValue = "" // --help shows no default
	}
}

// parsedSlice keeps the texts in a string slice flag, and converts them after each
// change.
type parsedSlice[T any] struct {
	pflag.Value
	pflag.SliceValue
	to    *[]T
	parse func(string) (T, error)
}

func (v *parsedSlice[T]) Set(text string) error {
	if err := v.Value.Set(text); err != nil {
		return err
	}
	return v.convert()
}

func (v *parsedSlice[T]) Append(text string) error {
	if err := v.SliceValue.Append(text); err != nil {
		return err
	}
	return v.convert()
}

func (v *parsedSlice[T]) Replace(texts []string) error {
	if err := v.SliceValue.Replace(texts); err != nil {
		return err
	}
	return v.convert()
}

func (v *parsedSlice[T]) convert() error {
	var out []T
	for _, text := range v.GetSlice() {
		one, err := v.parse(text)
		if err != nil {
			return err
		}
		out = append(out, one)
	}
	*v.to = out
	return nil
}
