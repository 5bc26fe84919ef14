package jsonpath

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/json"
)

const input = `{
  "kind": "List",
  "items": [
    {"kind": "None", "metadata": {"name": "127.0.0.1", "labels": {"kubernetes.io/hostname": "127.0.0.1"}},
     "status": {"capacity": {"cpu": "4"}, "addresses": [{"type": "LegacyHostIP", "address": "127.0.0.1"}]}},
    {"kind": "None", "metadata": {"name": "127.0.0.2", "labels": {"kubernetes.io/hostname": "127.0.0.2"}},
     "status": {"capacity": {"cpu": "8"}, "ready": true, "addresses": [{"type": "LegacyHostIP", "address": "127.0.0.2"}, {"type": "another", "address": "127.0.0.3"}]}}
  ],
  "users": [
    {"name": "myself", "user": {}, "age": 20},
    {"name": "e2e", "user": {"username": "admin", "password": "secret"}, "age": 40}
  ]
}`

func TestExpressions(t *testing.T) {
	var value any
	if err := json.Unmarshal([]byte(input), &value); err != nil {
		t.Fatal(err)
	}
	for template, want := range map[string]string{
		// Examples of the documentation.
		`kind is {.kind}`:           "kind is List",
		`{['kind']}`:                "List",
		`{.users..name}`:            "myself e2e", // {..name} has no order: the library ranges over maps
		`{.items[*].metadata.name}`: "127.0.0.1 127.0.0.2",
		`{.users[0].name}`:          "myself",
		`{.items[*]['metadata.name', 'status.capacity']}`:                    `127.0.0.1 127.0.0.2 {"cpu":"4"} {"cpu":"8"}`,
		`{.users[?(@.name=="e2e")].user.password}`:                           "secret",
		`{range .items[*]}[{.metadata.name}, {.status.capacity}] {end}`:      `[127.0.0.1, {"cpu":"4"}] [127.0.0.2, {"cpu":"8"}] `,
		`{range .items[*]}{.metadata.name}{'\t'}{end}`:                       "127.0.0.1\t127.0.0.2\t",
		`{.items[0].metadata.labels.kubernetes\.io/hostname}`:                "127.0.0.1",
		`{.items[0].metadata.labels['kubernetes\.io/hostname']}`:             "127.0.0.1",
		`{range .items[*]}{.metadata.name}{"\n"}{end}`:                       "127.0.0.1\n127.0.0.2\n",
		`{.items[*].status.addresses[?(@.type=='LegacyHostIP')].address}`:    "127.0.0.1 127.0.0.2",
		`{range .items[*]}{range .status.addresses[*]}{.address},{end}{end}`: "127.0.0.1,127.0.0.2,127.0.0.3,",
		`{@.kind} {$.kind} {$['users'][1]['name']}`:                          "List List e2e",
		`{range .users[*]}{.name}:{$.age} {end}`:                             "myself:20 e2e:40 ",
		// Slices and negative indexes.
		`{.users[-1].name}`:  "e2e",
		`{.users[-2:].name}`: "myself e2e",
		`{.users[0:1].name}`: "myself",
		`{.users[:].name}`:   "myself e2e",
		`{.users[::2].name}`: "myself",
		`{.users[0,1].name}`: "myself e2e",
		`{.users[1:].name}`:  "e2e",
		// Comparisons.
		`{.users[?(@.age > 30)].name}`:                    "e2e",
		`{.users[?(@.age<=20)].name}`:                     "myself",
		`{.users[?(@.name != "e2e")].name}`:               "myself",
		`{.users[?(@.user.username)].name}`:               "e2e",
		`{.items[?(@.status.ready==true)].metadata.name}`: "127.0.0.2",
		`{.items[?(@.metadata.name==@.metadata.labels.kubernetes\.io/hostname)].status.capacity.cpu}`: "4 8",
		// Values.
		`{.users[*].age}`:     "20 40",
		`{.users[1].user}`:    `{"password":"secret","username":"admin"}`,
		`{.nothing}`:          "",
		`{.users[0]..name}`:   "myself",
		`{.kind} and {.kind}`: "List and List",
		`{@}`:                 "",
		`plain`:               "plain",
		`{"a\tb"}`:            "a\tb",
	} {
		t.Run(template, func(t *testing.T) {
			p, err := Parse(template)
			if err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			if err := p.Execute(&out, value, true); err != nil {
				t.Fatal(err)
			}
			if template == `{@}` {
				if !strings.HasPrefix(out.String(), `{"items":`) {
					t.Errorf("got %.30s, want the whole", out.String())
				}
				return
			}
			if out.String() != want {
				t.Errorf("got %q, want %q", out.String(), want)
			}
		})
	}
}

func TestMistakes(t *testing.T) {
	for template, want := range map[string]string{
		`{.kind`:             "unclosed action",
		`{.items[}`:          "unterminated array",
		`{.items[x]}`:        "invalid array index x",
		`{.items[1:2:3:4]}`:  "invalid array index 1:2:3:4",
		`{.items['a]}`:       "invalid array index 'a",
		`{.items[?(@.a==b]}`: "unterminated filter",
		`{"a}`:               "unterminated",
		`{ = }`:              "unrecognized character in action",
	} {
		if _, err := Parse(template); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", template, err, want)
		}
	}
}

func TestEvaluationErrors(t *testing.T) {
	var value any
	if err := json.Unmarshal([]byte(input), &value); err != nil {
		t.Fatal(err)
	}
	for template, want := range map[string]string{
		`{.users[7].name}`:            "array index out of bounds: index 7, length 2",
		`{.users[5:9].name}`:          "array index out of bounds",
		`{.users[::-1].name}`:         "step must be > 0",
		`{.users[?(@.age>"x")].name}`: "incompatible types for comparison",
	} {
		p, err := Parse(template)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Execute(&strings.Builder{}, value, true); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", template, err, want)
		}
	}
}

// TestATemplateServesManyObjects checks that an evaluation leaves no state for
// the next one, even after an error inside a range.
func TestATemplateServesManyObjects(t *testing.T) {
	p, err := Parse(`{range .a[*]}{.b}{"\n"}{end}`)
	if err != nil {
		t.Fatal(err)
	}
	value := map[string]any{"a": []any{map[string]any{"b": "x"}, map[string]any{"b": "y"}}}
	for range 3 {
		if err := p.Execute(&strings.Builder{}, map[string]any{"a": []any{map[string]any{}}}, false); err == nil {
			t.Error("a missing field is no error")
		}
		var out strings.Builder
		if err := p.Execute(&out, value, false); err != nil || out.String() != "x\ny\n" {
			t.Errorf("got %q, %v", out.String(), err)
		}
	}
}

func TestStrictNamesWhatIsMissing(t *testing.T) {
	p, err := ParsePath("metadata.name")
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.Find(map[string]any{"metadata": map[string]any{}}, false)
	if err == nil || err.Error() != "name is not found" {
		t.Errorf("got %v", err)
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{`{.a.b[0:1]['x.y']}`, `{range .a[*]}{"\n"}{end}`, `{..a[?(@.b=="c")]}`, `{$.a[-1,2]}`} {
		f.Add(seed, `{"a":[{"b":"c"}]}`)
	}
	f.Fuzz(func(t *testing.T, template, data string) {
		p, err := Parse(template)
		if err != nil {
			return
		}
		var value any
		if json.Unmarshal([]byte(data), &value) != nil || strings.Count(template, "..") > 3 {
			return
		}
		_ = p.Execute(&strings.Builder{}, value, true)
	})
}
