package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"bench/process"
)

const (
	customGroup = "bench.example.com"
	customType  = "application/json"
)

// customDefinition is a CustomResourceDefinition with a schema such as operators have:
// nested objects, a list with keys, bounds, defaults, conditions.
const customDefinition = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"shops.bench.example.com"},"spec":{
"group":"bench.example.com","scope":"Namespaced","names":{"plural":"shops","singular":"shop","kind":"Shop","listKind":"ShopList"},
"versions":[{"name":"v1","served":true,"storage":true,"subresources":{"status":{}},"schema":{"openAPIV3Schema":{"type":"object","properties":{
"spec":{"type":"object","required":["image"],"properties":{
 "image":{"type":"string","minLength":1},"replicas":{"type":"integer","minimum":0,"default":1},"paused":{"type":"boolean"},
 "selector":{"type":"object","additionalProperties":{"type":"string"}},
 "ports":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["name"],"items":{"type":"object","required":["name"],
  "properties":{"name":{"type":"string"},"port":{"type":"integer","minimum":1,"maximum":65535},"protocol":{"type":"string","enum":["TCP","UDP"],"default":"TCP"}}}},
 "env":{"type":"array","items":{"type":"object","properties":{"name":{"type":"string"},"value":{"type":"string"}}}},
 "storage":{"type":"object","properties":{"size":{"x-kubernetes-int-or-string":true},"class":{"type":"string"}}}}},
"status":{"type":"object","properties":{"phase":{"type":"string"},"message":{"type":"string"},"readyReplicas":{"type":"integer"},
 "conditions":{"type":"array","items":{"type":"object","properties":{"type":{"type":"string"},"status":{"type":"string"},"reason":{"type":"string"},"message":{"type":"string"}}}}}}}}}}]}}`

const customShop = `{"apiVersion":"bench.example.com/v1","kind":"Shop","metadata":{"name":%q,"namespace":%q,
"labels":{"app":"shop","team":"team-%d","shard":"s%02d"},"annotations":{"example.com/owner":"shops@example.com"}},
"spec":{"image":"registry.example.com/shop/web:v1.42.0","replicas":3,"paused":false,"selector":{"app":"shop","tier":"web"},
"ports":[{"name":"http","port":8080},{"name":"metrics","port":9090,"protocol":"TCP"}],
"env":[{"name":"REGION","value":"eu-west-1"},{"name":"LOG_LEVEL","value":"info"},{"name":"CACHE","value":"redis://cache:6379"}],
"storage":{"size":"10Gi","class":"fast"}}}`

func shopName(i int) string { return fmt.Sprintf("shop-%06d", i) }

func shopPath(i int) string {
	return "/apis/" + customGroup + "/v1/namespaces/" + podNamespace(i) + "/shops/" + shopName(i)
}

// customResources runs the phases of custom resources.
func (b *bench) customResources() error {
	b.all, b.one = "/apis/"+customGroup+"/v1/shops", shopPath
	for i := range namespaces {
		// Upstream's server of custom resources alone has no namespaces, and needs none.
		if err := b.ensureNamespace(podNamespace(i)); err != nil && !strings.Contains(err.Error(), ": 404 ") {
			return err
		}
	}
	if err := b.define(); err != nil {
		return err
	}
	b.idleRSS = process.Memory(b.server, "VmRSS")
	for _, part := range []struct{ conc, from, until int }{{1, 0, b.pods / 5}, {64, b.pods / 5, b.pods}} {
		if _, err := b.measure("create_custom", part.conc, part.until-part.from, time.Minute, func(w, i int) (int, error) {
			i += part.from
			path, _, _ := strings.Cut(shopPath(i), "/shop-")
			r, err := b.call(b.ctx, w, "POST", path, customType, fmt.Appendf(nil, customShop, shopName(i), podNamespace(i), i%7, i%100))
			return len(r), err
		}); err != nil {
			return err
		}
	}
	time.Sleep(2 * time.Second)
	b.memory("memory_after_create")
	var list struct{ Items []json.RawMessage }
	body, err := b.call(b.ctx, 0, "GET", b.all, "", nil)
	if err == nil {
		err = json.Unmarshal(body, &list)
	}
	if err != nil || len(list.Items) != b.pods {
		return fmt.Errorf("list holds %d objects, want %d (%v)", len(list.Items), b.pods, err)
	}
	if _, err := b.measure("patch_status", 16, b.pods, b.brief, func(w, i int) (int, error) {
		r, err := b.call(b.ctx, w, "PATCH", shopPath(i)+"/status", "application/merge-patch+json", statusPatch(time.Now()))
		return len(r), err
	}); err != nil {
		return err
	}
	if err := b.lists(); err != nil {
		return err
	}
	for _, watchers := range []int{1, 100, 1000} {
		if err := b.watch("watch_all", watchers, false); err != nil {
			return err
		}
	}
	b.memory("memory_end")
	return nil
}

// define creates the definition and waits until its resource is served.
func (b *bench) define() error {
	start := time.Now()
	if _, err := b.call(b.ctx, 0, "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", customType, []byte(customDefinition)); err != nil {
		return err
	}
	for {
		_, err := b.call(b.ctx, 0, "GET", b.all, "", nil)
		if err == nil {
			break
		}
		if time.Since(start) > 20*time.Second {
			return fmt.Errorf("the custom resource is not served: %w", err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	b.emit(map[string]any{"phase": "define", "served_ms": ms(time.Since(start))})
	return nil
}
