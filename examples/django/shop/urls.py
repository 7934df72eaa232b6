from django.urls import path

from orders import views

urlpatterns = [path("orders", views.take), path("messages", views.receive)]
