package cronjob

import (
	"fmt"
	"maps"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/controller/ownership"
)

// jobName returns the name of the Job of a scheduled time.
func jobName(cj *batchv1.CronJob, at time.Time) string {
	return fmt.Sprintf("%s-%d", cj.Name, at.Unix()/60)
}

// newJob returns the Job of a scheduled time.
func newJob(cj *batchv1.CronJob, at time.Time) *batchv1.Job {
	template := cj.Spec.JobTemplate.DeepCopy()
	if zone := cj.Spec.TimeZone; zone != nil {
		if location, err := time.LoadLocation(*zone); err == nil {
			at = at.In(location)
		}
	} else {
		at = at.UTC()
	}
	j := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Name: jobName(cj, at), Namespace: cj.Namespace,
			Labels: template.Labels, Annotations: maps.Clone(template.Annotations),
			OwnerReferences: []metav1.OwnerReference{ownership.Reference(cj, batchv1.SchemeGroupVersion.WithKind("CronJob"))},
		},
		Spec: template.Spec,
	}
	metav1.SetMetaDataAnnotation(&j.ObjectMeta, batchv1.CronJobScheduledTimestampAnnotation, at.Format(time.RFC3339))
	return j
}

// scheduledTime returns the time that a Job which this controller created was scheduled for,
// zero for other Jobs.
func scheduledTime(cj *batchv1.CronJob, j *batchv1.Job) time.Time {
	at, err := time.Parse(time.RFC3339, j.Annotations[batchv1.CronJobScheduledTimestampAnnotation])
	if err != nil || jobName(cj, at) != j.Name {
		return time.Time{}
	}
	return at
}

func reference(j *batchv1.Job) corev1.ObjectReference {
	return corev1.ObjectReference{
		APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "Job",
		Namespace: j.Namespace, Name: j.Name, UID: j.UID, ResourceVersion: j.ResourceVersion,
	}
}
