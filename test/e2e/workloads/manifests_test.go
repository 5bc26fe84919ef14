package workloads

import "fmt"

// web is a Deployment with a Service and a budget. The program ends at once on SIGTERM.
func web(replicas int, surge, unavailable string, budget string) string {
	return fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: %d
  strategy: {rollingUpdate: {maxSurge: %s, maxUnavailable: %s}}
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: web
        image: localhost/podium/web:v1
        imagePullPolicy: Never
        ports: [{name: http, containerPort: 8080}]
        resources: {requests: {cpu: 10m, memory: 10Mi}}
        readinessProbe: {httpGet: {path: /healthz, port: http}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {type: NodePort, selector: {app: web}, ports: [{port: 80, targetPort: http}]}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec: {selector: {matchLabels: {app: web}}, %s}
`, replicas, surge, unavailable, budget)
}

// scaler is an autoscaler of web by CPU, in percent of the request.
func scaler(least, most, utilization int) string {
	return fmt.Sprintf(`
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec:
  minReplicas: %d
  maxReplicas: %d
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: %d}}}]
  behavior: {scaleDown: {stabilizationWindowSeconds: 0}}
`, least, most, utilization)
}
