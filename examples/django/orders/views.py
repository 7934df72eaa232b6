import json

from django.conf import settings
from django.db import transaction
from django.http import HttpResponse, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST
from standardwebhooks import Webhook, WebhookVerificationError

from .models import Invoice, Message, Order, Received


@csrf_exempt
@require_POST
def take(request):
    total = json.loads(request.body)["Total"]
    with transaction.atomic():
        order = Order.objects.create(total=total)
        Message.objects.create(
            topic="orders.taken", message_key=f"order-{order.pk}",
            payload_text=json.dumps({"order": order.pk, "total": order.total}),
            headers={"content-type": "application/json"},
        )
    return JsonResponse({"order": order.pk}, status=201)


@csrf_exempt  # a relay has no cookie; it is authenticated by its signature
@require_POST
def receive(request):
    try:
        message = Webhook(settings.SIGNING_SECRET).verify(request.body, request.headers)
    except WebhookVerificationError:
        return HttpResponse("the signature is wrong", status=401)
    with transaction.atomic():
        _, first = Received.objects.get_or_create(message_id=request.headers["Webhook-Id"])
        if first:
            Invoice.objects.create(order_key=request.headers["Rowrelay-Key"], total=message["total"])
    return HttpResponse(status=204)  # also for a duplicate, which already took effect
