from evervec.integrations.django.management.store_command import StoreCommand


class Command(StoreCommand):
    runs = "jobs"
