package deviceselector

import (
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func testDevice() *resourcev1.Device {
	return &resourcev1.Device{
		Name: "gpu-0",
		Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
			"model":              {StringValue: new("A100")},
			"index":              {IntValue: new(int64(3))},
			"healthy":            {BoolValue: new(true)},
			"firmware":           {VersionValue: new("1.2.3")},
			"other.example/rdma": {BoolValue: new(false)},
		},
		Capacity:                 map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"memory": {Value: resource.MustParse("40Gi")}},
		AllowMultipleAllocations: new(true),
	}
}

func TestMatches(t *testing.T) {
	device := NewDevice("gpu.example.com", testDevice())
	compiler := NewCompiler()
	for text, want := range map[string]string{
		`device.driver == "gpu.example.com"`:                                           "true",
		`device.attributes["gpu.example.com"].model == "A100"`:                         "true",
		`device.attributes["gpu.example.com"].index > 3`:                               "false",
		`device.attributes["gpu.example.com"].healthy`:                                 "true",
		`device.attributes["other.example"].rdma`:                                      "false",
		`device.attributes["gpu.example.com"].firmware.isGreaterThan(semver("1.2.0"))`: "true",
		`device.capacity["gpu.example.com"].memory.compareTo(quantity("32Gi")) >= 0`:   "true",
		`device.capacity["gpu.example.com"].memory.isLessThan(quantity("32Gi"))`:       "false",
		`device.allowMultipleAllocations == true`:                                      "true",
		`"model" in device.attributes["none.example"]`:                                 "false",
		`has(device.attributes["none.example"].model)`:                                 "false",
		`device.attributes["none.example"].model == "A100"`:                            "runtime error: no such key: model",
		`"none.example" in device.attributes`:                                          "false",
		`cel.bind(a, device.attributes["gpu.example.com"], a.model == "A100")`:         "true",
		`device.attributes["gpu.example.com"].model`:                                   "CEL result is not a boolean",
	} {
		got, err := compiler.Compile(text, true).Matches(t.Context(), device)
		result := "false"
		if got {
			result = "true"
		}
		if err != nil {
			result = err.Error()
		}
		if result != want {
			t.Errorf("%s: %s, want %s", text, result, want)
		}
	}
}

func TestBrokenExpressionsAreRefused(t *testing.T) {
	compiler := NewCompiler()
	for text, want := range map[string]string{
		``:                      "compilation failed",
		`device.`:               "compilation failed",
		`device.name == "x"`:    "undefined field 'name'",
		`device.driver`:         "must evaluate to bool or the unknown type, not string",
		`unknown`:               "undeclared reference",
		`device.driver + 1 > 2`: "no matching overload",
	} {
		for range 2 { // the second answer is cached
			if s := compiler.Compile(text, false); s.Error == nil || !strings.Contains(s.Error.Error(), want) {
				t.Errorf("%s: %v, want %s", text, s.Error, want)
			}
		}
	}
}

func TestExpensiveExpressionsAreTooComplex(t *testing.T) {
	compiler := NewCompiler()
	nested := func(depth int) string {
		text := "true"
		for i := range depth {
			text = strings.ReplaceAll(`device.attributes.all(X, TEXT)`, "TEXT", text)
			text = strings.ReplaceAll(text, "X", "x"+string(rune('a'+i)))
		}
		return text
	}
	if s := compiler.Compile(nested(2), false); s.Error != nil || s.TooComplex() {
		t.Errorf("two loops: %v, cost %d", s.Error, s.MaxCost)
	}
	if s := compiler.Compile(nested(5), false); s.Error != nil || !s.TooComplex() {
		t.Errorf("five loops: %v, cost %d", s.Error, s.MaxCost)
	}
}

func FuzzCompile(f *testing.F) {
	f.Add(`device.driver == "gpu.example.com"`)
	f.Add(`device.attributes["a"].b.matches("x+")`)
	f.Add(`device.capacity["a"].exists(x, true)`)
	compiler, device := NewCompiler(), NewDevice("gpu.example.com", testDevice())
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > resourcev1.CELSelectorExpressionMaxLength {
			return
		}
		s := compiler.Compile(text, false)
		if s.Error != nil {
			return
		}
		first, err := s.Matches(t.Context(), device)
		again, errAgain := s.Matches(t.Context(), device)
		if first != again || (err == nil) != (errAgain == nil) {
			t.Errorf("%q: %v %v, then %v %v", text, first, err, again, errAgain)
		}
	})
}
