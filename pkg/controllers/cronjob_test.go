package controllers_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
)

func cronJobOf(name, schedule string, change ...func(*batchv1.CronJob)) *batchv1.CronJob {
	cj := &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: batchv1.CronJobSpec{
			Schedule:    schedule,
			JobTemplate: batchv1.JobTemplateSpec{Spec: jobOf("", 1, 1, batchv1.NonIndexedCompletion).Spec},
		},
	}
	for _, f := range change {
		f(cj)
	}
	return cj
}

func (c *cluster) cronJob(name string) *batchv1.CronJob {
	cj, err := client.For[*batchv1.CronJob](c.Client).In("default").Get(context.Background(), name)
	if err != nil {
		c.t.Fatal(err)
	}
	return cj
}

// runs describes the Jobs of a CronJob in the order of their times: c for complete, f for
// failed, r for running.
func (c *cluster) runs(name string) string {
	var out []string
	for _, j := range all[*batchv1.Job](c, "") {
		if !strings.HasPrefix(j.Name, name+"-") {
			continue
		}
		state := "r"
		for _, cond := range j.Status.Conditions {
			switch cond.Type {
			case batchv1.JobComplete:
				state = "c"
			case batchv1.JobFailed:
				state = "f"
			}
		}
		out = append(out, j.Annotations[batchv1.CronJobScheduledTimestampAnnotation][11:16]+state)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func (c *cluster) cronEvents(name string) map[string]bool {
	out := map[string]bool{}
	for _, e := range c.events() {
		if e.InvolvedObject.Kind == "CronJob" && e.InvolvedObject.Name == name {
			out[e.Reason] = true
		}
	}
	return out
}

// TestCronJobs runs CronJobs for ten minutes. The bubble begins at midnight UTC.
func TestCronJobs(t *testing.T) {
	policy := func(p batchv1.ConcurrencyPolicy) func(*batchv1.CronJob) {
		return func(cj *batchv1.CronJob) { cj.Spec.ConcurrencyPolicy = p }
	}
	inCluster(t, 3, func(t *testing.T, c *cluster) {
		c.runTasks(func(p *corev1.Pod) (int32, time.Duration) {
			if strings.HasPrefix(p.Name, "long-") {
				return 0, 150 * time.Second
			}
			return 0, time.Second
		})
		create(c, cronJobOf("short", "* * * * *"))
		create(c, cronJobOf("long-allow", "* * * * *"))
		create(c, cronJobOf("long-forbid", "* * * * *", policy(batchv1.ForbidConcurrent)))
		create(c, cronJobOf("long-replace", "* * * * *", policy(batchv1.ReplaceConcurrent)))
		create(c, cronJobOf("off", "* * * * *", func(cj *batchv1.CronJob) { cj.Spec.Suspend = new(true) }))
		time.Sleep(5*time.Minute + 30*time.Second)
		for name, want := range map[string]string{
			"short":        "00:03c 00:04c 00:05c",
			"long-allow":   "00:01c 00:02c 00:03r 00:04r 00:05r",
			"long-forbid":  "00:01c 00:03r",
			"long-replace": "00:05r",
			"off":          "",
		} {
			if got := c.runs(name); got != want {
				t.Errorf("%s: runs %s, want %s", name, got, want)
			}
			if n, active := strings.Count(want, "r"), len(c.cronJob(name).Status.Active); n != active {
				t.Errorf("%s: %d active, want %d", name, active, n)
			}
		}
		for name, reason := range map[string]string{"short": "SawCompletedJob", "long-allow": "SuccessfulCreate", "long-forbid": "JobAlreadyActive", "long-replace": "SuccessfulDelete"} {
			if !c.cronEvents(name)[reason] {
				t.Errorf("%s: no event %s", name, reason)
			}
		}
		s := c.cronJob("short").Status
		if got := fmt.Sprintln(s.LastScheduleTime.UTC().Format(time.TimeOnly), s.LastSuccessfulTime.Sub(s.LastScheduleTime.Time) < 10*time.Second); got != "00:05:00 true\n" {
			t.Errorf("last schedule and success: %s", got)
		}
		for _, cj := range all[*batchv1.CronJob](c, "") {
			edit(c, cj.Name, func(cj *batchv1.CronJob) { cj.Spec.Suspend = new(true) })
		}
		time.Sleep(5 * time.Minute)
		c.quiet()
		c.checkUntracked()
	})
}

// TestFinishedJobsExpire checks that a Job is deleted when its time to live ends, not sooner,
// and that a longer one is respected.
func TestFinishedJobsExpire(t *testing.T) {
	inCluster(t, 2, func(t *testing.T, c *cluster) {
		c.runTasks(func(*corev1.Pod) (int32, time.Duration) { return 0, time.Second })
		ttl := func(seconds int32) func(*batchv1.Job) {
			return func(j *batchv1.Job) { j.Spec.TTLSecondsAfterFinished = &seconds }
		}
		create(c, jobOf("soon", 1, 1, batchv1.NonIndexedCompletion, ttl(60)))
		create(c, jobOf("later", 1, 1, batchv1.NonIndexedCompletion, ttl(60)))
		create(c, jobOf("never", 1, 1, batchv1.NonIndexedCompletion))
		for _, name := range []string{"soon", "later", "never"} {
			c.until(time.Minute, name+" is complete", c.jobIs(name, batchv1.JobComplete))
		}
		time.Sleep(50 * time.Second)
		edit(c, "later", ttl(900))
		if !exists[*batchv1.Job](c, "default", "soon") {
			t.Error("the Job is gone too soon")
		}
		time.Sleep(20 * time.Second)
		if exists[*batchv1.Job](c, "default", "soon") || len(c.pods("job-name=soon")) > 0 {
			t.Error("the Job or its pods are left")
		}
		if !exists[*batchv1.Job](c, "default", "later") || !exists[*batchv1.Job](c, "default", "never") {
			t.Error("another Job is gone, too")
		}
		c.quiet()
		time.Sleep(10 * time.Minute)
		if exists[*batchv1.Job](c, "default", "later") {
			t.Error("the second Job is left")
		}
	})
}

// TestCronJobsCatchUp stops the controllers for hours, in which runs are missed.
func TestCronJobsCatchUp(t *testing.T) {
	inCluster(t, 1, func(t *testing.T, c *cluster) {
		c.runTasks(func(*corev1.Pod) (int32, time.Duration) { return 0, time.Second })
		create(c, cronJobOf("hourly", "0 * * * *"))
		create(c, cronJobOf("minutely", "*/1 * * * *"))
		create(c, cronJobOf("strict", "0 * * * *", func(cj *batchv1.CronJob) { cj.Spec.StartingDeadlineSeconds = new(int64(60)) }))
		time.Sleep(61 * time.Minute)
		c.stop()
		<-c.done
		c.done <- nil
		time.Sleep(3*time.Hour + 9*time.Minute)
		c.startControllers()
		time.Sleep(20 * time.Second)
		for name, want := range map[string]string{"hourly": "01:00c 04:00c", "minutely": "00:59c 01:00c 04:10c", "strict": "01:00c"} {
			got := c.runs(name)
			if name == "minutely" {
				got = got[max(0, len(got)-len(want)):]
			}
			if got != want {
				t.Errorf("%s: runs %s, want %s", name, got, want)
			}
		}
		if !c.cronEvents("minutely")["TooManyMissedTimes"] || !c.cronEvents("strict")["MissSchedule"] {
			t.Errorf("events: %v, %v", c.cronEvents("minutely"), c.cronEvents("strict"))
		}
	})
}
