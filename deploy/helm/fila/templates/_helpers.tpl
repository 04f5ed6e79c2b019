{{- define "fila.name" -}}
{{- if contains "fila" .Release.Name }}{{ .Release.Name | trunc 52 | trimSuffix "-" }}{{ else }}{{ printf "%s-fila" .Release.Name | trunc 52 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "fila.selector" -}}
app.kubernetes.io/name: fila
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "fila.labels" -}}
{{ include "fila.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "fila.routes" -}}
{{- $name := include "fila.name" . }}
{{- range $i := until (int .Values.cluster.nodes) }}{{ if $i }},{{ end }}{{ $name }}-{{ $i }}.{{ $name }}:6222{{ end }}
{{- end }}
