package describe

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

func (p *page) limitRange(l *corev1.LimitRange) {
	p.head(&l.ObjectMeta)
	p.line(0, "Type\tResource\tMin\tMax\tDefault Request\tDefault Limit\tMax Limit/Request Ratio")
	p.line(0, "----\t--------\t---\t---\t---------------\t-------------\t-----------------------")
	p.limits(0, l.Spec)
}

func (p *page) limits(level int, spec corev1.LimitRangeSpec) {
	for _, item := range spec.Limits {
		columns := []corev1.ResourceList{item.Min, item.Max, item.DefaultRequest, item.Default, item.MaxLimitRequestRatio}
		all := corev1.ResourceList{}
		for _, c := range columns {
			for r := range c {
				all[r] = resource.Quantity{}
			}
		}
		for _, r := range sortedResources(all) {
			cells := []string{string(item.Type), string(r)}
			for _, c := range columns {
				cell := "-"
				if q, ok := c[r]; ok {
					cell = q.String()
				}
				cells = append(cells, cell)
			}
			p.line(level, "%s", strings.Join(cells, "\t"))
		}
	}
}

// scopeHelp says what a quota with a scope counts.
var scopeHelp = map[string]string{
	string(corev1.ResourceQuotaScopeTerminating):    "Matches all pods that have an active deadline. These pods have a limited lifespan on a node before being actively terminated by the system.",
	string(corev1.ResourceQuotaScopeNotTerminating): "Matches all pods that do not have an active deadline. These pods usually include long running pods whose container command is not expected to terminate.",
	string(corev1.ResourceQuotaScopeBestEffort):     "Matches all pods that do not have resource requirements set. These pods have a best effort quality of service.",
	string(corev1.ResourceQuotaScopeNotBestEffort):  "Matches all pods that have at least one resource requirement set. These pods have a burstable or guaranteed quality of service.",
}

func (p *page) resourceQuota(q *corev1.ResourceQuota) {
	p.head(&q.ObjectMeta)
	if len(q.Spec.Scopes) > 0 {
		scopes := texts(q.Spec.Scopes, func(s *corev1.ResourceQuotaScope) string { return string(*s) })
		slices.Sort(scopes)
		p.line(0, "Scopes:\t%s", strings.Join(scopes, ", "))
		for _, s := range scopes {
			if help := scopeHelp[s]; help != "" {
				p.line(0, " * %s", help)
			}
		}
	}
	p.line(0, "Resource\tUsed\tHard")
	p.line(0, "--------\t----\t----")
	for _, r := range sortedResources(q.Status.Hard) {
		hard, used := q.Status.Hard[r], q.Status.Used[r]
		if hard.Format != used.Format {
			used = *resource.NewQuantity(used.Value(), hard.Format)
		}
		p.line(0, "%s\t%s\t%s", r, used.String(), hard.String())
	}
}

func (p *page) disruptionBudget(b *policyv1.PodDisruptionBudget) {
	p.head(&b.ObjectMeta)
	if b.Spec.MinAvailable != nil {
		p.line(0, "Min available:\t%s", b.Spec.MinAvailable)
	} else if b.Spec.MaxUnavailable != nil {
		p.line(0, "Max unavailable:\t%s", b.Spec.MaxUnavailable)
	}
	selector := "<unset>"
	if b.Spec.Selector != nil {
		selector = metav1.FormatLabelSelector(b.Spec.Selector)
	}
	p.line(0, "Selector:\t%s", selector)
	p.line(0, "Status:")
	p.line(2, "Allowed disruptions:\t%d", b.Status.DisruptionsAllowed)
	p.line(2, "Current:\t%d", b.Status.CurrentHealthy)
	p.line(2, "Desired:\t%d", b.Status.DesiredHealthy)
	p.line(2, "Total:\t%d", b.Status.ExpectedPods)
}

func (p *page) priorityClass(c *schedulingv1.PriorityClass) {
	p.field(0, "Name", c.Name)
	p.line(0, "Value:\t%d", c.Value)
	p.line(0, "GlobalDefault:\t%t", c.GlobalDefault)
	p.line(0, "PreemptionPolicy:\t%s", optional(c.PreemptionPolicy, ""))
	p.line(0, "Description:\t%s", c.Description)
	p.line(0, "Annotations:\t%s", labels.FormatLabels(c.Annotations))
}

func (p *page) role(m *metav1.ObjectMeta, rules []rbacv1.PolicyRule) {
	p.field(0, "Name", m.Name)
	p.labels(m)
	p.line(0, "PolicyRule:")
	p.line(1, "Resources\tNon-Resource URLs\tResource Names\tVerbs")
	p.line(1, "---------\t-----------------\t--------------\t-----")
	for _, r := range perResource(rules) {
		p.line(1, "%s\t%v\t%v\t%v", r.resource(), r.urls, r.names, r.verbs)
	}
}

// permission is what a role allows on one resource, one of its objects, or one URL.
type permission struct {
	group, name, object string
	urls, names, verbs  []string
}

// resource returns "deployments.apps/scale".
func (r *permission) resource() string {
	name, sub, isSub := strings.Cut(r.name, "/")
	if r.group != "" {
		name += "." + r.group
	}
	if isSub {
		name += "/" + sub
	}
	return name
}

// perResource splits rules by resource and object, and joins the verbs of each. URLs
// stay a line for each verb, as kubectl shows them.
func perResource(rules []rbacv1.PolicyRule) []*permission {
	var out []*permission
	add := func(group, name, object, verb string) {
		for _, r := range out {
			if len(r.urls) == 0 && r.group == group && r.name == name && r.object == object {
				if !slices.Contains(r.verbs, verb) {
					r.verbs = append(r.verbs, verb)
				}
				return
			}
		}
		r := &permission{group: group, name: name, object: object, verbs: []string{verb}}
		if object != "" {
			r.names = []string{object}
		}
		out = append(out, r)
	}
	for _, rule := range rules {
		objects := rule.ResourceNames
		if len(objects) == 0 {
			objects = []string{""}
		}
		for _, group := range rule.APIGroups {
			for _, name := range rule.Resources {
				for _, verb := range rule.Verbs {
					for _, object := range objects {
						add(group, name, object, verb)
					}
				}
			}
		}
		for _, url := range rule.NonResourceURLs {
			for _, verb := range rule.Verbs {
				out = append(out, &permission{urls: []string{url}, verbs: []string{verb}})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b *permission) int { return strings.Compare(a.key(), b.key()) })
	return out
}

// key sorts permissions as kubectl does: by the text of their rule.
func (r *permission) key() string {
	rule := rbacv1.PolicyRule{Verbs: r.verbs, ResourceNames: r.names, NonResourceURLs: r.urls}
	if len(r.urls) == 0 {
		rule.APIGroups, rule.Resources = []string{r.group}, []string{r.name}
	}
	return fmt.Sprintf("%v", &rule)
}

func (p *page) binding(m *metav1.ObjectMeta, ref rbacv1.RoleRef, subjects []rbacv1.Subject) {
	p.field(0, "Name", m.Name)
	p.labels(m)
	p.line(0, "Role:")
	p.line(1, "Kind:\t%s", ref.Kind)
	p.line(1, "Name:\t%s", ref.Name)
	p.line(0, "Subjects:")
	p.line(1, "Kind\tName\tNamespace")
	p.line(1, "----\t----\t---------")
	for _, s := range subjects {
		p.line(1, "%s\t%s\t%s", s.Kind, s.Name, s.Namespace)
	}
}
